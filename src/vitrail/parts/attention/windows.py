"""Attention within windows of a grid of tokens (Liu et al. 2021, https://arxiv.org/abs/2103.14030).

Tokens keep their grid here: (B, H, W, D).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.attention.attention import Attention
from vitrail.parts.positions.interpolation import Grid
from vitrail.parts.positions.schemes import RelativePositionBias


def cut_windows(x: Tensor, window: Grid) -> Tensor:
    """Cut a grid (B, H, W, D) into windows, row by row: (B, windows, rows · columns, D). The window must divide the grid."""
    down, across = x.shape[1] // window[0], x.shape[2] // window[1]
    x = x.unflatten(2, (across, window[1])).unflatten(1, (down, window[0]))  # (B, down, rows, across, columns, D)
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def join_windows(windows: Tensor, window: Grid, grid: Grid) -> Tensor:
    """Join windows to a grid (H, W), the inverse of `cut_windows`: (B, windows, rows · columns, D) to (B, H, W, D)."""
    x = windows.unflatten(2, window).unflatten(1, (grid[0] // window[0], -1))  # (B, down, across, rows, columns, D)
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


@lru_cache(maxsize=64)
def neighbours(grid: Grid, window: Grid, shift: Grid) -> np.ndarray:
    """Return the attention mask of shifted windows: boolean (windows, n, n), True where a token may look.

    Rolling moves tokens from the top and left border to the bottom and right, so the last windows hold tokens from opposite
    borders. These must not see each other. A numpy array, since a tensor cached during tracing is unusable afterwards.
    """
    rows, columns = (np.arange(side) + step >= side for side, step in zip(grid, shift, strict=True))
    region = 2 * rows[:, None] + columns  # (H, W): the number of the region, of four, that a token was rolled from
    cut = region.reshape(grid[0] // window[0], window[0], -1, window[1]).swapaxes(1, 2).reshape(-1, window[0] * window[1])
    return np.equal(cut[:, :, None], cut[:, None])


class WindowAttention(nn.Module):
    """Attention within windows, with a learned bias per offset: (B, H, W, D) to (B, H, W, D), of any height and width.

    ``shifted`` windows lie half a window further down and to the right. Blocks alternate between both kinds, so that tokens on
    two sides of a window border see each other in every second block. The grid is padded with zeros to whole windows, then
    rolled. A side that is not longer than the window is one window, and is not shifted.

    Args:
        dim: width D.
        heads: number of heads.
        window: rows and columns of a window.
        shifted: whether windows are shifted.
        options: as in `Attention`.
    """

    def __init__(self, dim: int, heads: int, window: Grid, *, shifted: bool, **options: Any):
        super().__init__()
        self.window, self.shifted = window, shifted
        self.relative = RelativePositionBias(window, heads, prefix=0)
        self.attention = Attention(dim, heads, **options)

    def forward(self, x: Tensor) -> Tensor:
        grid: Grid = (x.shape[1], x.shape[2])
        window, shift = self.fitted(grid)
        x = self.rolled(x)
        padded: Grid = (x.shape[1], x.shape[2])
        bias = self.bias(window)  # (k, n, n)
        if any(shift):
            looks = torch.tensor(neighbours(padded, window, shift), device=x.device)[:, None]  # (windows, 1, n, n)
            bias = torch.where(looks, bias, float("-inf"))  # cheaper than a mask: one tensor for all images of the batch
        windows = self.attention(cut_windows(x, window), bias=bias)
        x = join_windows(windows, window, padded).roll(shift, dims=(1, 2))
        return x[:, : grid[0], : grid[1]]

    def rolled(self, x: Tensor, padding: float = 0.0) -> Tensor:
        """Return a grid (B, H, W, D) padded to whole windows, and rolled by the shift so that windows begin at its corner."""
        grid: Grid = (x.shape[1], x.shape[2])
        window, shift = self.fitted(grid)
        rows, columns = (-side % length for side, length in zip(grid, window, strict=True))
        return F.pad(x, (0, 0, 0, columns, 0, rows), value=padding).roll((-shift[0], -shift[1]), dims=(1, 2))

    def places(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return row and column of each query and of each key, window by window: (windows, n, 2) each, NaN for padding."""
        rows, columns = (torch.arange(side, dtype=torch.float32) for side in grid)
        everywhere = torch.cartesian_prod(rows, columns).unflatten(0, grid)[None]
        cut = cut_windows(self.rolled(everywhere, padding=math.nan), self.fitted(grid)[0])[0]
        return cut, cut

    def fitted(self, grid: Grid) -> tuple[Grid, Grid]:
        """Return the window and its shift for a grid; the window is at most as large as the grid."""
        (rows, down), (columns, across) = (
            (length, length // 2 if self.shifted else 0) if side > length else (side, 0)
            for side, length in zip(grid, self.window, strict=True)
        )
        return (rows, columns), (down, across)

    def bias(self, window: Grid) -> Tensor:
        """Return the bias of the scores, (k, n, n); a smaller window uses the entries of its own offsets."""
        rows, columns = window
        bias = self.relative().unflatten(2, self.window).unflatten(1, self.window)
        return bias[:, :rows, :columns, :rows, :columns].flatten(3, 4).flatten(1, 2)
