"""Attention: queries from one sequence, keys and values from the same or from another.

Equations are numbered as in Dosovitskiy et al. 2021 (https://arxiv.org/abs/2010.11929), appendix A.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from vitrail.checks import require_divisible
from vitrail.errors import ConfigError
from vitrail.parts.attention.cache import KeyValueCache
from vitrail.parts.attention.dot_product import Group, attend, attend_within, attention_weights, with_causal
from vitrail.parts.cpu.dropout import Dropout
from vitrail.parts.normalization import NormKind, norm_layer
from vitrail.parts.positions.schemes import Rotation, rotate


def _rows(table: Tensor | None, first: int) -> Tensor | None:
    """Return the rows of the first queries in a mask or bias, broadcastable to (B, k, N_Q, N_X)."""
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
        scale: factor of the scores; ``1 / sqrt(D_h)`` by default.
        value_skip: adds the values to the result, which then has their width: a residual connection where the input's width
            differs from the output's (Yuan et al. 2021, https://arxiv.org/abs/2101.11986).
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
        scale: float | None = None,
        value_skip: bool = False,
    ):
        super().__init__()
        query_dim = query_dim or dim
        value_dim = value_dim or query_dim
        require_divisible("dim" if query_dim == dim else "query_dim", query_dim, "heads", heads)
        require_divisible("value_dim", value_dim, "heads", heads)
        self.heads, self.widths = heads, [query_dim, query_dim, value_dim]
        self.attention_dropout, self.scale, self.value_skip = attention_dropout, scale, value_skip
        self.add_projections(dim, context_dim, bias)
        self.query_norm = norm_layer(query_dim // heads, kind=norm_kind, eps=norm_eps) if qk_norm else nn.Identity()
        self.key_norm = norm_layer(query_dim // heads, kind=norm_kind, eps=norm_eps) if qk_norm else nn.Identity()
        self.output_norm = norm_layer(value_dim, kind=norm_kind, eps=norm_eps) if output_norm else nn.Identity()
        self.output = nn.Linear(value_dim, output_dim or dim, bias=output_bias)
        self.dropout = Dropout(dropout)

    def add_projections(self, dim: int, context_dim: int | None, bias: bool) -> None:
        """Add the layers that `project` calls."""
        query, key, value = self.widths
        if context_dim is None:
            self.qkv = nn.Linear(dim, query + key + value, bias=bias)
        else:
            self.query = nn.Linear(dim, query, bias=bias)
            self.key_value = nn.Linear(context_dim, key + value, bias=bias)

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
        causal: bool = False,
        cache: KeyValueCache | None = None,
        **positions: Any,
    ) -> Tensor:
        """Compute equation (8): ``MSA(z) = [SA_1(z); …; SA_k(z)] U_msa``.

        Args:
            x: (B, N_Q, D), or in self-attention (B, windows, N_Q, D).
            context: (B, N_X, D_X) for cross-attention; may be left out once the cache holds its keys and values.
            mask: boolean, broadcastable to (B, k, N_Q, N_X); True where a query may look.
            bias: additive, broadcastable to (B, k, N_Q, N_X).
            rotation: rotary positions of the tokens, for self-attention.
            groups: images that are packed one behind another in ``x`` (1, T, D); each attends to itself alone. Not together
                with a mask or bias.
            first: compute the first so many queries only; not together with groups.
            causal: no query looks at a later token.
            cache: keys and values of earlier calls. Self-attention appends to it; cross-attention stores its context in it.
            positions: options of a subclass's `project`, for example ``grid``.

        Returns:
            (B, N_Q, output_dim), or (B, first, output_dim).
        """
        q, k, v = self.project(x, context, rotation, cache, **positions)
        if first is not None:
            mask, causal = with_causal(mask, causal, q, k), False  # before queries are cut: the last one belongs to the last key
            q, mask, bias = q[:, :, :first], _rows(mask, first), _rows(bias, first)
        return self.mix(q, k, v, mask=mask, bias=bias, groups=groups, causal=causal)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Map q, k, v from `project` to the output (B, N_Q, output_dim); ``options`` as in `attended`."""
        joined = self.output_norm(self.attended(q, k, v, **options).transpose(-3, -2).flatten(-2))  # (B, N_Q, k·D_V)
        result = self.dropout(self.output(joined))  # (B, N_Q, output_dim)
        return v.transpose(-3, -2).flatten(-2) + result if self.value_skip else result

    def attended(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        groups: Sequence[Group] = (),
        causal: bool = False,
    ) -> Tensor:
        """Compute equations (6) and (7), ``A v``: (B, k, N_Q, D_V)."""
        dropout = self.attention_dropout if self.training else 0.0
        if groups:
            return attend_within(q, k, v, groups, dropout=dropout, scale=self.scale)
        return attend(q, k, v, mask=mask, bias=bias, causal=causal, dropout=dropout, scale=self.scale)

    def project(
        self,
        x: Tensor,
        context: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KeyValueCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute equation (5), ``[q, k, v] = z U_qkv``, per head: (B, k, N_Q, D_h), (B, k, N_X, D_h), (B, k, N_X, D_V)."""
        if not hasattr(self, "qkv"):
            return self._project_both(x, context, rotation, cache)
        if context is not None:
            hint = "build it with context_dim to attend to another sequence"
            raise ConfigError("self-attention was given a context", where="Attention", hint=hint)
        projected = self.qkv(x)
        apart = isinstance(projected, tuple)  # an exported graph may have three layers; see vitrail.deploy.export.split_qkv
        q, k, v = (self.split_heads(t) for t in (projected if apart else projected.split(self.widths, dim=-1)))
        q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return q, *((k, v) if cache is None else cache.extended(k, v))

    def _project_both(
        self, x: Tensor, context: Tensor | None, rotation: Rotation | None, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries of ``x``, and keys and values of the context; those are read from the cache if it holds them."""
        q = self.query_norm(self.split_heads(self.query(x)))
        if cache is not None and cache.length:
            return q, *cache.tensors
        if context is None or rotation is not None:
            hint = "call attention(x, context)"
            raise ConfigError("cross-attention takes a context and no rotation", where="Attention", hint=hint)
        k, v = (self.split_heads(t) for t in self.key_value(context).split(self.widths[1:], dim=-1))
        k = self.key_norm(k)
        return q, *((k, v) if cache is None else cache.extended(k, v))

    def split_heads(self, x: Tensor) -> Tensor:
        """Reshape (…, N, k·D) to (…, k, N, D)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def weights(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        causal: bool = False,
        **places: Any,
    ) -> Tensor:
        """Return the weights A of equation (6), (B, k, N_Q, N_X); arguments as in `forward`, which never builds A."""
        q, k, _ = self.project(x, context, rotation, **places)
        return self.weights_of(q, k, mask=mask, bias=bias, causal=causal)

    def weights_of(
        self, q: Tensor, k: Tensor, *, mask: Tensor | None = None, bias: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return the attention weights A of projected queries and keys: (B, k, N_Q, N_X)."""
        return attention_weights(q, k, mask=with_causal(mask, causal, q, k), bias=bias, scale=self.scale)
