"""Attention between two LSTMs: the scores of the papers, one by one."""

import pytest
import torch

from vitrail.parts import AdditiveAlignment, DotAlignment

DIM = 6


def scores(part, query, key) -> torch.Tensor:
    """Of each state of the decoder and each of the encoder, by the papers' formulas."""
    if isinstance(part, DotAlignment):
        pairs = [[torch.dot(s, h) for h in key] for s in query]
    else:
        pairs = [[part.score.weight[0] @ torch.tanh(part.query.weight @ s + u) for u in key] for s in query]
    return torch.stack([torch.stack(row) for row in pairs])


@pytest.mark.parametrize("kind", [DotAlignment, lambda: AdditiveAlignment(DIM)], ids=["dot", "additive"])
def test_weights_are_the_softmax_of_the_scores_of_tokens_and_the_result_is_their_mean(kind):
    part, query, key, memory = kind(), torch.randn(2, 3, DIM), torch.randn(2, 5, DIM), torch.randn(2, 5, DIM)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None]
    weights, seen = part.weights(query, key, mask), part(query, key, memory, mask)
    for row, count in enumerate((5, 3)):
        expected = scores(part, query[row], key[row, :count]).exp()
        expected = expected / expected.sum(dim=1, keepdim=True)
        torch.testing.assert_close(weights[row, :, :count], expected)
        assert not weights[row, :, count:].any()
        torch.testing.assert_close(seen[row], expected @ memory[row, :count])
