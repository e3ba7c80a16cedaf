"""Attention before the Transformer, of a decoder's states to an encoder's: by products, or by a small network."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.parts.attention.dot_product import attend, attention_weights, masked_softmax


class DotAlignment(nn.Module):
    """Global attention with the score ``s · h`` (Luong et al. 2015, https://arxiv.org/abs/1508.04025, equations 7 and 8).

    Queries are the states ``s`` (B, T, D) of the decoder, keys and memory are ``h`` (B, S, D) of the encoder.
    It has no parameters, and does not divide by √D.
    """

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return weights (B, T, S), whose rows sum to 1; ``mask`` is broadcastable to them, True where a state may look."""
        return attention_weights(_undivided(query), key, mask=mask)

    def forward(self, query: Tensor, key: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the mean of the encoder's states by the weights: (B, T, D)."""
        return attend(_undivided(query), key, memory, mask=mask)


class AdditiveAlignment(nn.Module):
    """Attention with the score ``v · tanh(W s + U h)`` (Bahdanau et al. 2014, https://arxiv.org/abs/1409.0473, appendix A.1.2).

    Called as `DotAlignment`, with keys ``U h``, (B, S, A), which are computed once for all states of the decoder.

    Args:
        dim: width D of the decoder's states.
        alignment_dim: width A of the hidden layer, of which there is one for each pair of states; D by default.
    """

    def __init__(self, dim: int, alignment_dim: int | None = None):
        super().__init__()
        width = alignment_dim or dim
        self.query = nn.Linear(dim, width, bias=False)  # W
        self.score = nn.Linear(width, 1, bias=False)  #   v

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = _AdditiveScores.apply(2 * self.query(query), 2 * key, 2 * self.score.weight[0])
        return masked_softmax(scores, mask=mask)

    def forward(self, query: Tensor, key: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.weights(query, key, mask) @ memory


class _AdditiveScores(torch.autograd.Function):
    """``v · (σ(q + k) - 1/2)`` of all pairs of queries (B, T, A) and keys (B, S, A): (B, T, S).

    As ``tanh(x) = 2 σ(2 x) - 1``, this is ``v · tanh(q + k)`` with all three doubled; torch's tanh takes 3 to 9 times as long
    on a CPU as its σ. The B·T·S·A numbers of the pairs are computed a piece at a time, in float32 at least, and again
    for the derivatives: in the processor's cache that is faster than to store them, and takes no memory.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, v)
        q, k, v = _exactly(query, key, v)
        scores = q.new_empty(*q.shape[:2], k.shape[1])
        for rows, places in _pieces(q, k):
            hidden, own = _hidden(q[rows, places], k[rows]), scores[rows, places]
            torch.mm(hidden.flatten(0, 2), v[:, None], out=own.view(-1, 1))  # whatever autocast would take
        return (scores - v.sum() / 2).to(query.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_scores: Tensor) -> Any:
        q, k, v, d_scores = _exactly(*ctx.saved_tensors, d_scores)
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), (d_scores.sum() / -2).expand_as(v)
        for rows, places in _pieces(q, k):
            hidden, d = _hidden(q[rows, places], k[rows]), d_scores[rows, places, :, None]
            d_v = d_v + d.flatten() @ hidden.flatten(0, 2)
            each = d * hidden
            each.addcmul_(each, hidden, value=-1)  # d σ (1 - σ), without v, which all have in common
            d_q[rows, places] = each.sum(dim=2)
            d_k[rows] += each.sum(dim=1)
        return d_q * v, d_k * v, d_v


def _exactly(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in float32 at least."""
    return [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors]


def _hidden(query: Tensor, key: Tensor) -> Tensor:
    """Return ``σ(q + k)``, (B, T, S, A)."""
    return (query[:, :, None] + key[:, None]).sigmoid_()


PIECE, LARGE_PIECE = 2**19, 2**26
"""Numbers of a piece: as many as a CPU's cache takes, and as keep an accelerator or torch.compile busy."""


def _pieces(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield slices of the rows B and the places T of queries, whose pairs with all keys fit into a piece."""
    (batch, length, _), numbers = query.shape, max(1, key.shape[1] * key.shape[2])
    small = query.device.type == "cpu" and not torch.compiler.is_compiling()
    queries = max(1, (PIECE if small else LARGE_PIECE) // numbers)
    rows, places = max(1, queries // max(1, length)), min(queries, max(1, length))
    for row in range(0, batch, rows):
        for place in range(0, length, places):
            yield slice(row, row + rows), slice(place, place + places)


def _undivided(query: Tensor) -> Tensor:
    """Multiply queries by the factor that `attend` divides by."""
    return query * math.sqrt(query.shape[-1])
