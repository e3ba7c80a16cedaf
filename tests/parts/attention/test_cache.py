"""Attention that remembers: one token at a time gives what the whole sequence gives."""

import torch

from vitrail.parts import Attention, KeyValueCache


def attention(**options) -> Attention:
    torch.manual_seed(0)
    return Attention(8, 2, **options).double().eval()


def test_tokens_in_pieces_of_any_length_give_what_all_at_once_give():
    mixer, x = attention(), torch.randn(3, 40, 8, dtype=torch.float64)
    with torch.no_grad():
        whole = mixer(x, causal=True)
        for lengths in ([1] * 40, [7, 1, 1, 20, 11], [40]):
            cache = KeyValueCache()
            pieces = [mixer(piece, causal=True, cache=cache) for piece in x.split(lengths, dim=1)]
            torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-12, atol=1e-12)
            assert cache.length == 40


def test_the_context_is_projected_once_and_kept():
    mixer, x, context = attention(context_dim=6), torch.randn(3, 4, 8).double(), torch.randn(3, 5, 6).double()
    cache = KeyValueCache()
    with torch.no_grad():
        whole = mixer(x, context)
        first = mixer(x[:, :1], context, cache=cache)
        rest = mixer(x[:, 1:], cache=cache)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole, rtol=1e-12, atol=1e-12)


def test_selected_sequences_go_on_as_if_they_had_been_alone():
    mixer, x, rows = attention(), torch.randn(3, 6, 8, dtype=torch.float64), torch.tensor([2, 0, 2, 1])
    with torch.no_grad():
        whole = mixer(x[rows], causal=True)
        cache = KeyValueCache()
        for token in x[:, :4].split(1, dim=1):
            mixer(token, causal=True, cache=cache)
        cache.select(rows)
        rest = [mixer(token, causal=True, cache=cache) for token in x[rows][:, 4:].split(1, dim=1)]
    torch.testing.assert_close(torch.cat(rest, dim=1), whole[:, 4:], rtol=1e-12, atol=1e-12)
