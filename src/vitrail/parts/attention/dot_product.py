"""Scaled dot-product attention: queries, keys and values of one head, or of several side by side.

Equations are numbered as in Dosovitskiy et al. 2021 (https://arxiv.org/abs/2010.11929), appendix A.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.parts.cpu.explicit_attention import Explicit, explicit_is_faster


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Compute equation (6), ``A = softmax(q kᵀ / sqrt(D_h))``, without a fused kernel.

    Args:
        query: (…, N_Q, D_h).
        key: (…, N_X, D_h).
        mask: boolean, broadcastable to (…, N_Q, N_X); True where a query may look.
        bias: additive, broadcastable to (…, N_Q, N_X); for example the relative position bias.
        scale: factor of the scores; ``1 / sqrt(D_h)`` by default.

    Returns:
        (…, N_Q, N_X), rows sum to 1; a row whose mask is False everywhere is all zeros.
    """
    scaled = query / math.sqrt(query.shape[-1]) if scale is None else query * scale  # fewer multiplications than on the scores
    scores = scaled @ key.transpose(-2, -1)
    return masked_softmax(scores, mask=mask, bias=bias)


def masked_softmax(scores: Tensor, *, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Map scores (…, N_Q, N_X) to weights whose rows sum to 1; mask and bias as in `attention_weights`."""
    bias = _additive(mask, bias, scores.dtype)
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return scores.softmax(dim=-1)
    sees = mask.any(dim=-1, keepdim=True) if mask.ndim else mask  # a softmax over nothing is NaN, and so is its gradient
    return scores.masked_fill(~sees, 0.0).softmax(dim=-1).masked_fill(~sees, 0.0)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute equations (6) and (7), ``SA(z) = A v``, by torch's fused kernel where it is faster.

    Args:
        query: (…, N_Q, D_h).
        key: (…, N_X, D_h).
        value: (…, N_X, D_V); N_X may differ from N_Q and D_V from D_h.
        mask: boolean, broadcastable to (…, N_Q, N_X); True where a query may look.
        bias: additive, broadcastable to (…, N_Q, N_X).
        causal: whether no query looks at a later token; see `causal_mask`.
        dropout: probability of dropping an entry of A.
        scale: as in `attention_weights`.

    Returns:
        (…, N_Q, D_V).
    """
    explicit, square = explicit_is_faster(query, key, bias), query.shape[-2] == key.shape[-2]
    if causal and square and mask is None and bias is None and not explicit:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropout, scale=scale)
    mask = with_causal(mask, causal, query, key)
    if explicit and not dropout:
        return Explicit.apply(query, key, value, mask, None if bias is None else bias.to(query.dtype), scale)
    if explicit:
        weights = attention_weights(query, key, mask=mask, bias=bias, scale=scale)
        return F.dropout(weights, dropout) @ value
    return _fused(query, key, value, _additive(mask, bias, query.dtype), dropout, scale)


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float, scale: float | None) -> Tensor:
    """Call torch's kernel; it takes one batch dimension before the heads, so that further ones are flattened into it."""
    batch = q.shape[:-3]
    if bias is not None:
        bias = bias[(None,) * (q.ndim - bias.ndim)]
    if len(batch) <= 1:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale)
    if bias is not None:
        alike = all(count == 1 for count in bias.shape[:-3])
        bias = (bias if alike else bias.expand(*batch, *bias.shape[-3:])).flatten(0, -4)
    q, k, v = (t.flatten(0, -4) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale).unflatten(0, batch)


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return boolean (N_Q, N_X), True where a query may look: itself and earlier tokens. Queries are the last N_Q tokens."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def with_causal(mask: Tensor | None, causal: bool, query: Tensor, key: Tensor) -> Tensor | None:
    """Return the mask of `attend`, combined with the causal mask if ``causal``."""
    if not causal or query.shape[-2] == 1:  # the last token sees all
        return mask
    earlier = causal_mask(query.shape[-2], key.shape[-2], query.device)
    return earlier if mask is None else mask & earlier


@dataclass(frozen=True)
class Group:
    """``count`` images of ``length`` tokens each, packed one behind another in a longer sequence."""

    count: int
    length: int
    bias: Tensor | None = None
    """Additive, (k, length, length)."""


def attend_within(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    groups: Sequence[Group],
    *,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute `attend` for packed images, each of which sees itself alone: only the diagonal blocks of A are computed.

    Args:
        query, key: (1, k, T, D_h), where T is the number of tokens in all groups.
        value: (1, k, T, D_V).

    Returns:
        (1, k, T, D_V).
    """
    found, start = [], 0
    for group in groups:
        end = start + group.count * group.length
        q, k, v = (t[0, :, start:end].unflatten(1, (group.count, -1)) for t in (query, key, value))  # (k, count, length, D_h)
        bias = None if group.bias is None else group.bias[:, None]
        found.append(attend(q, k, v, bias=bias, dropout=dropout, scale=scale).flatten(1, 2))
        start = end
    return torch.cat(found, dim=1)[None]


def _additive(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Combine mask and bias into one additive term: minus infinity where a query may not look."""
    if mask is None:
        return None if bias is None else bias.to(dtype)
    if mask.dtype != torch.bool:
        raise ConfigError(
            f"mask has type {mask.dtype}", where="attention mask", hint="give a boolean mask, True where a query may look"
        )
    base = torch.zeros((), dtype=dtype, device=mask.device) if bias is None else bias.to(dtype)
    return torch.where(mask, base, float("-inf"))
