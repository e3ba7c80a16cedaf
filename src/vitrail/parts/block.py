"""The block of every model: a residual branch with a token mixer, then a residual branch with an MLP."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts.attention.attention import Attention
from vitrail.parts.normalization import NormKind, norm_layer
from vitrail.parts.vision.token_reduction import merge_tokens

NormPlace = Literal["pre", "post", "residual-post"]
"""The position of a branch's norm; see `Branch`."""
Map = Callable[[Tensor], Tensor]
"""(B, …, D) to (B, …, D)."""


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016, https://arxiv.org/abs/1603.09382): drops the whole branch of a sample.

    Remaining branches are divided by the probability of remaining, so that the expected value is the same.
    """

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        keep = 1 - self.probability
        mask = torch.empty((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device).bernoulli_(keep)
        return x * mask / keep


def drop_path_rate(last: float, number: int, count: int) -> float:
    """Return the drop probability of block ``number`` of ``count``: it grows linearly from 0 in the first to ``last``."""
    return last * number / max(1, count - 1)


class LayerScale(nn.Module):
    """A learned factor per channel on a branch (Touvron et al. 2021, https://arxiv.org/abs/2103.17239)."""

    def __init__(self, dim: int, initial: float):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Modulation(nn.Module):
    """Vectors computed from a condition, by default ``[shift; scale; gate] = silu(c) Wᵀ + b``: (B, C) to (B, count · D).

    W and b start at zero. They are not in an `nn.Linear`, so that a model's `initialize` leaves them at zero.
    """

    def __init__(self, condition: int, dim: int, count: int = 3):
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.zeros(count * dim, condition))
        self.bias = nn.Parameter(torch.zeros(count * dim))

    def forward(self, condition: Tensor, ndim: int = 3) -> tuple[Tensor, ...]:
        """Map (B, C) to ``count`` tensors (B, 1, D); for tokens of ``ndim`` dimensions there are ``ndim - 2`` ones in between."""
        vectors = F.linear(F.silu(condition), self.weight, self.bias)  # (B, count · D)
        return vectors.view(-1, *[1] * (ndim - 2), vectors.shape[-1]).chunk(self.count, dim=-1)


class ModulatedHead(nn.Module):
    """The last layer of DiT, ``Linear(LN(x) · (1 + scale) + shift)``: (B, N, D) and a condition (B, D) to (B, N, outputs)."""

    def __init__(self, dim: int, outputs: int, *, eps: float = 1e-6):
        super().__init__()
        self.norm = norm_layer(dim, eps=eps, affine=False)
        self.modulation = Modulation(dim, dim, count=2)
        self.linear = nn.Linear(dim, outputs)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale = self.modulation(condition)
        result: Tensor = self.linear(self.norm(x) * (1 + scale) + shift)
        return result


class Branch(nn.Module):
    """One residual branch around ``layer``: equations (2) and (3) are ``x + layer(LN(x))``.

    Args:
        dim: width D.
        layer: maps (B, N, D) and keyword arguments to (B, N, D).
        norm: "pre" computes ``x + layer(LN(x))``, "post" ``LN(x + layer(x))`` (Vaswani et al. 2017), "residual-post"
            ``x + LN(layer(x))`` (Liu et al. 2022, https://arxiv.org/abs/2111.09883).
        norm_kind: LayerNorm or RMSNorm.
        layer_scale: initial value of a LayerScale on the branch; None for none.
        drop_path: probability of dropping the branch of a sample.
        norm_eps: epsilon of the norm.
        condition: width C of a condition vector per sample that shifts, scales and gates the branch (adaLN-Zero; Peebles and
            Xie 2023, https://arxiv.org/abs/2212.09748): ``x + gate · layer(LN(x) · (1 + scale) + shift)``. The norm then has no
            parameters, and the gate starts at zero. None for no condition.
    """

    def __init__(
        self,
        dim: int,
        layer: nn.Module,
        *,
        norm: NormPlace = "pre",
        norm_kind: NormKind = "layer",
        layer_scale: float | None = None,
        drop_path: float = 0.0,
        norm_eps: float = 1e-6,
        condition: int | None = None,
    ):
        super().__init__()
        self.norm_place = norm
        self.norm = norm_layer(dim, kind=norm_kind, eps=norm_eps, affine=condition is None)
        self.modulation = None if condition is None else Modulation(condition, dim)
        self.layer = layer
        self.scale = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, *, first: int | None = None, condition: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Map (B, N, D) to (B, N, D); with ``first``, which ``layer`` must accept, to the results of the first tokens only.

        Raises:
            ConfigError: a ``condition`` (B, C) for a branch that was built without one, or none for a branch built with one.
        """
        wanted = x if first is None else x[:, :first]
        if first is not None:
            kwargs["first"] = first
        norm: Map = self.norm
        drop_path: Map = self.drop_path
        if self.modulation is not None or condition is not None:
            norm, drop_path = self._conditioned(condition, x.ndim)
        result = self.scale(self.layer(norm(x) if self.norm_place == "pre" else x, **kwargs))
        if self.norm_place == "residual-post":
            result = norm(result)
        x = wanted + drop_path(result)
        return norm(x) if self.norm_place == "post" else x

    def _conditioned(self, condition: Tensor | None, ndim: int) -> tuple[Map, Map]:
        """Return two functions: the norm with shift and scale, and drop path with the gate, for tokens of ``ndim`` dimensions."""
        if self.modulation is None or condition is None:
            what = "a block without a condition was given one" if self.modulation is None else "the block needs a condition"
            raise ConfigError(what, where="Block", hint="build it with condition=C, and call it with condition= of shape (B, C)")
        shift, scale, gate = self.modulation(condition, ndim)
        return lambda z: self.norm(z) * (1 + scale) + shift, lambda z: self.drop_path(z * gate)


class Block(nn.Module):
    """A token mixer's branch, then an MLP's: equations (2) and (3). ``options`` are as in `Branch`.

    With ``cross``, a cross-attention, a third branch stands between the two, as in the decoder of Vaswani et al. 2017
    (https://arxiv.org/abs/1706.03762). With ``condition``, the same vector of a sample modulates every branch; since gates
    start at zero, a new pre-norm block is the identity.
    """

    def __init__(self, dim: int, attention: nn.Module, mlp: nn.Module, *, cross: nn.Module | None = None, **options: Any):
        super().__init__()
        self.attention = Branch(dim, attention, **options)
        self.cross = None if cross is None else Branch(dim, cross, **options)
        self.mlp = Branch(dim, mlp, **options)

    def forward(
        self, x: Tensor, *, across: Mapping[str, Any] | None = None, condition: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        """Map tokens (B, N, D) to (B, N, D), or to (B, first, D) if ``kwargs`` holds ``first``.

        ``kwargs`` go to the self-attention, ``across`` (with its ``context``) to the cross-attention. ``condition`` is (B, C),
        for a block that was built with one.
        """
        x = self.attention(x, condition=condition, **kwargs)  # (B, N, D)  equation (2)
        if self.cross is not None:
            x = self.cross(x, condition=condition, **(across or {}))  # (B, N, D)
        return self.mlp(x, condition=condition)  # (B, N, D)  equation (3)

    def merging(self, x: Tensor, sizes: Tensor, count: int, *, prefix: int) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the block and merge tokens before the MLP: `merge_tokens` by the attention's keys. No condition.

        In the softmax a merged token counts as often as the number of patches in it.

        Args:
            x: (B, prefix + N, D).
            sizes: number of patches in each token, (B, prefix + N, 1).
            count: number of patches to merge into others.
            prefix: number of tokens before the patches; they are never merged.

        Returns:
            As `merge_tokens`: tokens, sizes, and the new index of every old token.
        """
        branch, attention = self.attention, cast(Attention, self.attention.layer)
        q, k, v = attention.project(branch.norm(x))
        x = x + branch.scale(attention.mix(q, k, v, bias=patches_in(sizes)))
        x, sizes, place = merge_tokens(x, k.transpose(1, 2).flatten(2), sizes, count, prefix=prefix)
        return self.mlp(x), sizes, place


def patches_in(sizes: Tensor) -> Tensor:
    """Return the softmax bias that counts a token once per patch in it, the log of its size: (B, N, 1) to (B, 1, 1, N)."""
    return sizes.log().mT[:, None]


class Parallel(nn.Module):
    """The sum of a token mixer and an MLP that read the same input."""

    def __init__(self, attention: nn.Module, mlp: nn.Module):
        super().__init__()
        self.attention = attention
        self.mlp = mlp

    def forward(self, x: Tensor, *, first: int | None = None, **kwargs: Any) -> Tensor:
        return self.attention(x, first=first, **kwargs) + self.mlp(x[:, :first])


class ParallelBlock(Branch):
    """``x + MSA(LN(x)) + MLP(LN(x))`` in one branch (Dehghani et al. 2023, https://arxiv.org/abs/2302.05442)."""

    def __init__(self, dim: int, attention: nn.Module, mlp: nn.Module, **options: Any):
        super().__init__(dim, Parallel(attention, mlp), **options)
