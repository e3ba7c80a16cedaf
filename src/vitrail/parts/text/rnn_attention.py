"""Attention of recurrent decoders to the encoder's states: dot-product and additive."""

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
        """Return the encoder's states averaged with these weights: (B, T, D)."""
        return attend(_undivided(query), key, memory, mask=mask)


class AdditiveAlignment(nn.Module):
    """Attention with the score ``v · tanh(W s + U h)`` (Bahdanau et al. 2014, https://arxiv.org/abs/1409.0473, appendix A.1.2).

    It is called like `DotAlignment`, with keys ``U h`` (B, S, A) that are computed once for all states of the decoder.

    Args:
        dim: width D of the decoder's states.
        alignment_dim: width A of the hidden layer, which is computed for each pair of states; D by default.
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
    """``v · (σ(q + k) - 1/2)`` for all pairs of queries (B, T, A) and keys (B, S, A): (B, T, S).

    Since ``tanh(x) = 2 σ(2 x) - 1``, this equals ``v · tanh(q + k)`` if q, k and v are doubled; on a CPU, torch's tanh takes 3
    to 9 times as long as its σ. The B·T·S·A hidden values are computed piece by piece, in float32 at least, and computed again
    in the backward pass: a piece stays in the processor's cache, which is faster than storing them all and saves memory.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, v)
        q, k, v = _exactly(query, key, v)
        scores = q.new_empty(*q.shape[:2], k.shape[1])
        for rows, places in _pieces(q, k):
            hidden, own = _hidden(q[rows, places], k[rows]), scores[rows, places]
            torch.mm(hidden.flatten(0, 2), v[:, None], out=own.view(-1, 1))  # ``out`` keeps float32 under autocast
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
            each.addcmul_(each, hidden, value=-1)  # d σ (1 - σ); the common factor v is applied at the end
            d_q[rows, places] = each.sum(dim=2)
            d_k[rows] += each.sum(dim=1)
        return d_q * v, d_k * v, d_v


def _exactly(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors in float32 at least."""
    return [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors]


def _hidden(query: Tensor, key: Tensor) -> Tensor:
    """Return ``σ(q + k)``, (B, T, S, A)."""
    return (query[:, :, None] + key[:, None]).sigmoid_()


PIECE, LARGE_PIECE = 2**19, 2**26
"""Hidden values in a piece: the first fits into a CPU's cache, the second keeps a GPU or torch.compile busy."""


def _pieces(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield slices of batch rows B and of query positions T such that their pairs with all keys fit into a piece."""
    (batch, length, _), numbers = query.shape, max(1, key.shape[1] * key.shape[2])
    small = query.device.type == "cpu" and not torch.compiler.is_compiling()
    queries = max(1, (PIECE if small else LARGE_PIECE) // numbers)
    rows, places = max(1, queries // max(1, length)), min(queries, max(1, length))
    for row in range(0, batch, rows):
        for place in range(0, length, places):
            yield slice(row, row + rows), slice(place, place + places)


def _undivided(query: Tensor) -> Tensor:
    """Multiply queries by √D, which cancels the division in `attend`."""
    return query * math.sqrt(query.shape[-1])
