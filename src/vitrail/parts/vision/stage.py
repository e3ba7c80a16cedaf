"""Stages of a pyramid, each with fewer tokens of more channels. Tokens keep their grid here: (B, H, W, D)."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.cpu.dropout import Dropout
from vitrail.parts.positions.schemes import LearnedPosition1d


class GridEmbedding(nn.Module):
    """A convolution that turns patches of a grid into tokens, (B, H, W, C) to (B, H', W', D). In the first stage C is 3.

    Patches overlap if ``patch_size`` is greater than ``stride`` (Wang et al. 2022, https://arxiv.org/abs/2106.13797).

    Args:
        channels: width C of the input.
        dim: width D of the tokens.
        patch_size: side of a patch.
        stride: distance of two patches; ``patch_size`` by default.
        padding: zeros on every side.
        pad: fills an incomplete patch at the right or bottom with zeros; otherwise it is dropped.
        norm_eps: epsilon of the norm on the tokens.

    A side that is shorter than one patch is always filled to one patch.
    """

    def __init__(
        self,
        channels: int,
        dim: int,
        patch_size: int,
        *,
        stride: int | None = None,
        padding: int = 0,
        pad: bool = False,
        norm_eps: float = 1e-5,
    ):
        super().__init__()
        self.multiple, self.least = patch_size if pad else 1, patch_size - 2 * padding  # see `pad_grid`
        self.projection = nn.Conv2d(channels, dim, patch_size, stride or patch_size, padding)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = pad_grid(x, self.multiple, self.least).permute(0, 3, 1, 2)
        return self.norm(self.projection(x).permute(0, 2, 3, 1))

    def middles(self, side: int) -> Tensor:
        """Return the centres of the patches along a side of this length, (patches,). A side shorter than a patch has one."""
        stride, first = self.projection.stride[0], min(self.least, side)
        return stride * torch.arange((side - first) // stride + 1) + (first - 1) / 2


class PositionedEmbedding(GridEmbedding):
    """`GridEmbedding` with learned positions: (B, H, W, C) to (B, H', W', D).

    If the positions include a class token's, a class token comes first, and the tokens have no grid: (B, 1 + H'·W', D).

    Args:
        channels, dim, patch_size: as in `GridEmbedding`.
        position: positions added to the tokens, for a grid of any size.
        dropout: dropout on the result.
        options: as in `GridEmbedding`.
    """

    def __init__(
        self, channels: int, dim: int, patch_size: int, position: LearnedPosition1d, *, dropout: float = 0.0, **options: Any
    ):
        super().__init__(channels, dim, patch_size, **options)
        self.class_token = nn.Parameter(torch.empty(1, position.prefix, dim)) if position.prefix else None
        if self.class_token is not None:
            nn.init.normal_(self.class_token, std=0.02)
        self.position = position
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        patches = super().forward(x)
        grid = (patches.shape[1], patches.shape[2])
        tokens = patches.flatten(1, 2)
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)
        tokens = self.dropout(self.position(tokens, grid))
        return tokens.unflatten(1, grid) if self.class_token is None else tokens


class PatchMerging(nn.Module):
    """A layer that merges each 2×2 tokens into one of twice the width: (B, H, W, D) to (B, ⌈H/2⌉, ⌈W/2⌉, 2D).

    ``LN([x_00; x_10; x_01; x_11]) W`` (Liu et al. 2021, section 3.1). An odd side is padded with zeros at the right or bottom.
    """

    def __init__(self, dim: int, *, norm_eps: float = 1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim, eps=norm_eps)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def middles(self, side: int) -> Tensor:
        """Return the centre of every two positions along a side: (⌈side / 2⌉,)."""
        return 2 * torch.arange(-(-side // 2)) + 0.5

    def forward(self, x: Tensor) -> Tensor:
        x = pad_grid(x, 2)
        neighbours = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(neighbours, dim=-1)))


def pad_grid(x: Tensor, multiple: int, least: int = 1) -> Tensor:
    """Pad a grid (B, H, W, D) with zeros to the right and below, to sides that are multiples of ``multiple``, or to ``least``."""
    rows, columns = (max(-side % multiple, least - side) for side in x.shape[1:3])
    return F.pad(x, (0, 0, 0, columns, 0, rows)) if rows or columns else x


class Stage(nn.Module):
    """An embedding that makes a coarser grid, blocks, and a norm: (B, H, W, C) to (B, H', W', D).

    Args:
        embedding: makes the coarser grid.
        blocks: layers that keep the shape.
        norm: norm of the result; None for none.
    """

    def __init__(self, embedding: nn.Module, blocks: Iterable[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.Identity()

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x, **options)
        return self.norm(x)
