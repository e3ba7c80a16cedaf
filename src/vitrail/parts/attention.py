"""Attention: queries from one sequence, keys and values from the same or from another.

Equations are numbered as in Dosovitskiy et al. 2021 (https://arxiv.org/abs/2010.11929), appendix A.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.checks import require_divisible
from vitrail.errors import ConfigError
from vitrail.parts.attention_kernel import Explicit, explicit_is_faster
from vitrail.parts.normalization import NormKind, norm_layer
from vitrail.parts.positions import Rotation, rotate


def attention_weights(query: Tensor, key: Tensor, *, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Equation (6): ``A = softmax(q kᵀ / sqrt(D_h))``, written out.

    Args:
        query: (…, N_Q, D_h).
        key: (…, N_X, D_h).
        mask: boolean, broadcastable to (…, N_Q, N_X); True where a query may look.
        bias: additive, broadcastable to (…, N_Q, N_X); the relative position bias, say.

    Returns:
        (…, N_Q, N_X), rows sum to 1; a row whose mask is False everywhere is all zeros.
    """
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # fewer numbers to divide than afterwards
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
    dropout: float = 0.0,
) -> Tensor:
    """Equations (6) and (7): ``SA(z) = A v``, by torch's fused kernel where that is the faster way.

    Args:
        query: (…, N_Q, D_h).
        key: (…, N_X, D_h).
        value: (…, N_X, D_V); N_X may differ from N_Q and D_V from D_h.
        mask: boolean, broadcastable to (…, N_Q, N_X); True where a query may look.
        bias: additive, broadcastable to (…, N_Q, N_X).
        dropout: probability of dropping an entry of A.

    Returns:
        (…, N_Q, D_V).
    """
    if explicit_is_faster(query, key):
        if mask is None and bias is None and not dropout:
            return Explicit.apply(query, key, value)
        weights = attention_weights(query, key, mask=mask, bias=bias)
        return F.dropout(weights, dropout) @ value
    bias = _additive(mask, bias, query.dtype)
    if bias is not None:
        bias = torch.atleast_2d(bias)  # the kernel wants (N_Q, N_X) at least
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)


@dataclass(frozen=True)
class Group:
    """``count`` images of ``length`` tokens each that stand behind each other in a longer sequence."""

    count: int
    length: int
    bias: Tensor | None = None
    """Additive, (k, length, length)."""


def attend_within(query: Tensor, key: Tensor, value: Tensor, groups: Sequence[Group], *, dropout: float = 0.0) -> Tensor:
    """`attend` where every image of a sequence sees itself alone: blocks on the diagonal of A, of which no other is computed.

    Args:
        query, key: (1, k, T, D_h), where T is the tokens of all groups.
        value: (1, k, T, D_V).

    Returns:
        (1, k, T, D_V).
    """
    found, start = [], 0
    for group in groups:
        end = start + group.count * group.length
        q, k, v = (t[0, :, start:end].unflatten(1, (group.count, -1)) for t in (query, key, value))  # (k, count, length, D_h)
        bias = None if group.bias is None else group.bias[:, None]
        found.append(attend(q, k, v, bias=bias, dropout=dropout).flatten(1, 2))
        start = end
    return torch.cat(found, dim=1)[None]


def _additive(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as one additive term: minus infinity where a query may not look."""
    if mask is None:
        return None if bias is None else bias.to(dtype)
    if mask.dtype != torch.bool:
        raise ConfigError(
            f"mask has type {mask.dtype}", where="attention mask", hint="give a boolean mask, True where a query may look"
        )
    base = torch.zeros((), dtype=dtype, device=mask.device) if bias is None else bias.to(dtype)
    return torch.where(mask, base, float("-inf"))


def _rows(table: Tensor | None, first: int) -> Tensor | None:
    """What a mask or bias, broadcastable to (B, k, N_Q, N_X), says of the first queries."""
    return table if table is None or table.ndim < 2 or table.shape[-2] == 1 else table[..., :first, :]


class Attention(nn.Module):
    """Multi-head attention, equations (5) to (8).

    Self-attention when ``context_dim`` is None: queries, keys and values come from one fused projection ``U_qkv``.
    Otherwise cross-attention: keys and values come from a second sequence of width ``context_dim``, which may have any
    length (also the same sequence pooled or convolved, as in PVT).

    Args:
        dim: width D of the queries' sequence.
        heads: number of heads k.
        context_dim: width D_X of the second sequence.
        query_dim: width of all queries (and keys) together, k·D_h; ``dim`` by default.
        value_dim: width of all values together, k·D_V; ``query_dim`` by default.
        output_dim: width of the result; ``dim`` by default.
        bias: whether the projections to q, k, v have a bias.
        output_bias: whether the output projection has a bias.
        qk_norm: a norm on each head's queries and keys (Dehghani et al. 2023, https://arxiv.org/abs/2302.05442).
        output_norm: a norm on the results of all heads side by side, before the output projection (Wang et al. 2022,
            https://arxiv.org/abs/2210.06423).
        attention_dropout: dropout on A.
        dropout: dropout on the result.
        norm_kind: of the norms of ``qk_norm`` and ``output_norm``.
        norm_eps: their epsilon.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        context_dim: int | None = None,
        query_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        bias: bool = True,
        output_bias: bool = True,
        qk_norm: bool = False,
        output_norm: bool = False,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-6,
    ):
        super().__init__()
        query_dim = query_dim or dim
        value_dim = value_dim or query_dim
        require_divisible("dim" if query_dim == dim else "query_dim", query_dim, "heads", heads)
        require_divisible("value_dim", value_dim, "heads", heads)
        self.heads, self.widths = heads, [query_dim, query_dim, value_dim]
        self.attention_dropout = attention_dropout
        if context_dim is None:
            self.qkv = nn.Linear(dim, 2 * query_dim + value_dim, bias=bias)
        else:
            self.query = nn.Linear(dim, query_dim, bias=bias)
            self.key_value = nn.Linear(context_dim, query_dim + value_dim, bias=bias)
        self.query_norm = norm_layer(query_dim // heads, kind=norm_kind, eps=norm_eps) if qk_norm else nn.Identity()
        self.key_norm = norm_layer(query_dim // heads, kind=norm_kind, eps=norm_eps) if qk_norm else nn.Identity()
        self.output_norm = norm_layer(value_dim, kind=norm_kind, eps=norm_eps) if output_norm else nn.Identity()
        self.output = nn.Linear(value_dim, output_dim or dim, bias=output_bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        groups: Sequence[Group] = (),
        first: int | None = None,
    ) -> Tensor:
        """Equation (8): ``MSA(z) = [SA_1(z); …; SA_k(z)] U_msa``.

        Args:
            x: (B, N_Q, D).
            context: (B, N_X, D_X); only for cross-attention.
            mask: boolean, broadcastable to (B, k, N_Q, N_X); True where a query may look.
            bias: additive, broadcastable to (B, k, N_Q, N_X).
            rotation: rotary positions of the tokens; only for self-attention.
            groups: the images of which ``x`` (1, T, D) holds the tokens, each of which sees itself alone; then without mask
                and bias.
            first: only the first so many queries are asked; then without groups.

        Returns:
            (B, N_Q, output_dim), or (B, first, output_dim).
        """
        q, k, v = self.project(x, context, rotation)
        if first is not None:
            q, mask, bias = q[:, :, :first], _rows(mask, first), _rows(bias, first)
        return self.mix(q, k, v, mask=mask, bias=bias, groups=groups)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        groups: Sequence[Group] = (),
    ) -> Tensor:
        """What `forward` makes of the result of `project`: (B, N_Q, output_dim)."""
        dropout = self.attention_dropout if self.training else 0.0
        if groups:
            heads = attend_within(q, k, v, groups, dropout=dropout)
        else:
            heads = attend(q, k, v, mask=mask, bias=bias, dropout=dropout)  # (B, k, N_Q, D_V)
        joined = self.output_norm(heads.transpose(1, 2).flatten(2))  # (B, N_Q, k·D_V)
        return self.dropout(self.output(joined))  # (B, N_Q, output_dim)

    def project(
        self, x: Tensor, context: Tensor | None = None, rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Equation (5): ``[q, k, v] = z U_qkv``, per head: (B, k, N_Q, D_h), (B, k, N_X, D_h), (B, k, N_X, D_V)."""
        if hasattr(self, "qkv"):
            if context is not None:
                raise ConfigError(
                    "self-attention was given a context",
                    where="Attention",
                    hint="build it with context_dim to attend to another sequence",
                )
            projected = self.qkv(x)
            apart = isinstance(projected, tuple)  # as an engine may want it, see vitrail.deploy.projections
            q, k, v = projected if apart else projected.split(self.widths, dim=-1)
        else:
            if context is None or rotation is not None:
                raise ConfigError(
                    "cross-attention takes a context and no rotation", where="Attention", hint="call attention(x, context)"
                )
            q = self.query(x)
            k, v = self.key_value(context).split(self.widths[1:], dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return q, k, v

    def weights(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """A of equation (6) for the same arguments as `forward`: (B, k, N_Q, N_X). `forward` never builds it."""
        q, k, _ = self.project(x, context, rotation)
        return attention_weights(q, k, mask=mask, bias=bias)
