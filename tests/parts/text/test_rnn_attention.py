"""Attention between two LSTMs: the scores of the papers, one by one."""

import pytest
import torch

from vitrail.parts import AdditiveAlignment, DotAlignment
from vitrail.parts.attention.dot_product import masked_softmax
from vitrail.parts.text import rnn_attention as alignment

DIM = 6


def by_hand(part: AdditiveAlignment, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """``v · tanh(W s + U h)`` of all pairs at once, with autograd's derivatives."""
    return torch.tanh(part.query(query)[:, :, None] + key[:, None]) @ part.score.weight[0]


def scores(part, query, key) -> torch.Tensor:
    """Of each state of the decoder and each of the encoder, by the papers' formulas."""
    if isinstance(part, DotAlignment):
        pairs = [[torch.dot(s, h) for h in key] for s in query]
    else:
        pairs = [[part.score.weight[0] @ torch.tanh(part.query.weight @ s + u) for u in key] for s in query]
    return torch.stack([torch.stack(row) for row in pairs])


@pytest.mark.parametrize("width", [None, 1, 9], ids=lambda width: f"additive {width}")
def test_weights_of_additive_attention_are_those_of_the_paper(width):
    check_weights(AdditiveAlignment(DIM, width), width or DIM)


def test_weights_of_dot_attention_are_those_of_the_paper():
    check_weights(DotAlignment(), DIM)


def check_weights(part, width: int) -> None:
    """They are the softmax of the scores of tokens, and the result is the mean of the memory by them."""
    query, key, memory = torch.randn(2, 3, DIM), torch.randn(2, 5, width), torch.randn(2, 5, DIM)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None]
    weights, seen = part.weights(query, key, mask), part(query, key, memory, mask)
    for row, count in enumerate((5, 3)):
        expected = scores(part, query[row], key[row, :count]).exp()
        expected = expected / expected.sum(dim=1, keepdim=True)
        torch.testing.assert_close(weights[row, :, :count], expected)
        assert not weights[row, :, count:].any()
        torch.testing.assert_close(seen[row], expected @ memory[row, :count])


@pytest.mark.parametrize("piece", [10, 2**18])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (2, 7, 1, 1), (0, 2, 3, 4), (2, 0, 3, 4)])
def test_scores_and_derivatives_are_those_by_hand_whatever_the_size_of_a_piece(shape, piece, monkeypatch):
    monkeypatch.setattr(alignment, "PIECE", piece)
    rows, length, keys, width = shape
    part = AdditiveAlignment(DIM, width).double()
    query, key = torch.randn(rows, length, DIM, dtype=torch.double), 3 * torch.randn(rows, keys, width, dtype=torch.double)
    factors = torch.randn(rows, length, keys, dtype=torch.double)
    found = []
    for weights in (part.weights, lambda query, key: masked_softmax(by_hand(part, query, key))):
        inputs = [query.clone().requires_grad_(), key.clone().requires_grad_(), *part.parameters()]
        result = weights(*inputs[:2])
        found.append((result.detach(), *torch.autograd.grad((result * factors).sum(), inputs)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (3, 3, 30, 10)])
def test_pieces_are_all_pairs_once_and_none_is_larger_than_it_must_be(shape, monkeypatch):
    monkeypatch.setattr(alignment, "PIECE", 100)
    rows, length, keys, width = shape
    seen = torch.zeros(rows, length)
    for piece in alignment._pieces(torch.empty(rows, length, width), torch.empty(rows, keys, width)):
        seen[piece] += 1
        assert seen[piece].numel() * keys * width <= max(100, keys * width)
    assert (seen == 1).all()


def test_sums_that_are_far_from_zero_are_no_trouble():
    part = AdditiveAlignment(DIM)
    query, key = torch.tensor([-1e4, 0.0, 1e4])[None, :, None].expand(1, 3, DIM), torch.randn(1, 5, DIM).requires_grad_()
    weights = part.weights(query, key)
    weights.square().sum().backward()
    torch.testing.assert_close(weights, masked_softmax(by_hand(part, query, key)))
    assert key.grad is not None and key.grad.isfinite().all()


@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_computes_exactly_what_it_is_given(autocast):
    part = AdditiveAlignment(64, 48)
    query, key = torch.randn(2, 5, 64), torch.randn(2, 7, 48)
    if not autocast:
        part, query, key = part.bfloat16(), query.bfloat16(), key.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        projected = part.query(query)
        found = part.weights(query, key.bfloat16())
    pairs = torch.tanh(projected.double()[:, :, None] + key.bfloat16().double()[:, None])
    expected = (pairs @ part.score.weight[0].double()).bfloat16()
    torch.testing.assert_close(found.float(), expected.float().softmax(dim=-1), rtol=0.01, atol=2e-3)


def test_no_number_of_a_pair_is_kept_for_the_derivatives():
    kept: list[int] = []
    part = AdditiveAlignment(8)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        part(torch.randn(2, 30, 8), torch.randn(2, 40, 8).requires_grad_(), torch.randn(2, 40, 8))
    assert max(kept) <= 2 * 30 * 40
