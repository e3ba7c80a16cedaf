"""CvT's attention, with convolutions as projections, and its stage (Wu et al. 2021, https://arxiv.org/abs/2103.15808)."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts.attention.attention import Attention
from vitrail.parts.attention.cache import KeyValueCache
from vitrail.parts.cpu.precision import learns_under_cpu_autocast
from vitrail.parts.normalization import BatchNorm
from vitrail.parts.positions.interpolation import Grid
from vitrail.parts.positions.schemes import Rotation
from vitrail.parts.vision.stage import Stage


class DepthwiseConv(nn.Module):
    """A depth-wise 3×3 convolution and BatchNorm: (B, D, H, W) to (B, D, ⌈H / stride⌉, ⌈W / stride⌉)."""

    def __init__(self, dim: int, stride: int):
        super().__init__()
        self.convolution = nn.Conv2d(dim, dim, 3, stride, padding=1, groups=dim, bias=False)
        self.norm = BatchNorm(dim)
        self.strided = stride > 1

    def forward(self, x: Tensor) -> Tensor:
        if self.strided and learns_under_cpu_autocast(x):
            with torch.autocast("cpu", enabled=False):  # its backward pass takes ten times as long in half precision
                return self.norm(self.convolution(x.float())).to(x.dtype)
        return self.norm(self.convolution(x))


class ConvolvedAttention(Attention):
    """Self-attention whose queries, keys and values are each a convolution of the token grid, then a linear layer.

    ``softmax(Q Kᵀ / sqrt(D)) V`` with ``Q = conv_q(x) W_q``. The convolutions of K and V have stride 2 (section 3.2).
    As in the authors' code, scores are divided by the square root of the total width D, not of a head's width. Tokens before
    the patches, such as the class token, skip the convolutions.

    Args:
        dim: width D.
        heads: number of heads.
        options: as in `Attention`.
    """

    def __init__(self, dim: int, heads: int, **options: Any):
        super().__init__(dim, heads, scale=dim**-0.5, **options)
        self.convolved = nn.ModuleDict(
            {"query": DepthwiseConv(dim, 1), "key": DepthwiseConv(dim, 2), "value": DepthwiseConv(dim, 2)}
        )

    def add_projections(self, dim: int, context_dim: int | None, bias: bool) -> None:
        self.query, self.key, self.value = (nn.Linear(dim, width, bias=bias) for width in self.widths)

    def project(
        self,
        x: Tensor,
        context: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KeyValueCache | None = None,
        *,
        grid: Grid | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Map tokens (B, prefix + H·W, D) on a ``grid`` (H, W) to q (B, k, prefix + H·W, D_h), and k and v of a quarter as many.

        Raises:
            ConfigError: the grid is missing, or a context, rotation or cache is passed.
        """
        if grid is None or any(given is not None for given in (context, rotation, cache)):
            what, hint = "convolved attention takes only tokens and their grid", "call attention(x, grid=(rows, columns))"
            raise ConfigError(what, where="ConvolvedAttention", hint=hint)
        prefix = x.shape[1] - grid[0] * grid[1]
        first, patches = x[:, :prefix], x[:, prefix:].contiguous()  # copied once here instead of in each of the convolutions
        patches = patches.unflatten(1, grid).permute(0, 3, 1, 2)  # (B, D, H, W)

        def projected(kind: str) -> Tensor:
            tokens = self.convolved[kind](patches).permute(0, 2, 3, 1).flatten(1, 2)
            return self.split_heads(self.get_submodule(kind)(torch.cat([first, tokens], dim=1) if prefix else tokens))

        return self.query_norm(projected("query")), self.key_norm(projected("key")), projected("value")

    def places(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return row and column of each query, (N, 2), and of the centre of the patches behind each key, (N_X, 2)."""
        strides = (cast(nn.Conv2d, self.convolved[kind].convolution).stride[0] for kind in ("query", "key"))
        queries, keys = (
            torch.cartesian_prod(*(torch.arange(0, side, stride, dtype=torch.float32) for side in grid)) for stride in strides
        )
        return queries, keys


class SequenceStage(Stage):
    """A stage whose blocks take a token sequence and its ``grid``: (B, H, W, C) to (B, H', W', D).

    Args:
        embedding: makes the coarser grid.
        blocks: map (B, prefix + H'·W', D) and a grid to the same shape.
        class_token: width D of a class token before the patches, which the next stage does not see; None for no class token.
    """

    def __init__(self, embedding: nn.Module, blocks: Iterable[nn.Module], *, class_token: int | None = None):
        super().__init__(embedding, blocks)
        self.class_token = None if class_token is None else nn.Parameter(torch.empty(1, 1, class_token))
        if self.class_token is not None:
            nn.init.normal_(self.class_token, std=0.02)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        tokens, grid = self.sequence(x, **options)
        return tokens[:, -grid[0] * grid[1] :].unflatten(1, grid)

    def sequence(self, x: Tensor, *, first: int | None = None, **options: Any) -> tuple[Tensor, Grid]:
        """Return all tokens (B, prefix + H'·W', D), or the ``first`` of them only, and their grid."""
        x = self.embedding(x)  # (B, H', W', D)
        grid: Grid = (x.shape[1], x.shape[2])
        x = x.flatten(1, 2)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        *blocks, last = self.blocks
        for block in blocks:
            x = block(x, grid=grid, **options)
        return last(x, grid=grid, first=first, **options), grid
