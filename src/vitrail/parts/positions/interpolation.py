"""Interpolation of values from one grid to another: learned positions for images of another size."""

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Grid = tuple[int, int]
"""Rows and columns."""


@dataclass(frozen=True)
class Interpolation:
    """A way to interpolate values from one grid to another; libraries differ in it."""

    mode: Literal["bicubic", "bilinear", "geometric"] = "bicubic"
    """bicubic or bilinear as in torch; geometric as timm interpolates relative positions, see `resize_geometrically`."""
    antialias: bool = True
    """Average over all old values when the grid shrinks; torch's bicubic then also uses another kernel."""
    align_corners: bool = False
    """Align the centres of the corner values, instead of their outer edges."""
    relative: "Interpolation | None" = None
    """A different interpolation for tables of relative positions; None for the same."""


ANTIALIASED = Interpolation()
"""Default of Vitrail and of timm."""


def resize_grid(values: Tensor, grid: Grid, interpolation: Interpolation = ANTIALIASED) -> Tensor:
    """Interpolate (B, C, rows, columns) to another grid, in float32 at least; the result has the type of ``values``."""
    turn = grid[1] == 1  # torch 2.13 on CPU fills a result of one column with its first value; one row is computed correctly
    resized = F.interpolate(
        (values.mT if turn else values).to(torch.promote_types(values.dtype, torch.float32)),
        size=grid[::-1] if turn else grid,
        mode=interpolation.mode,
        antialias=interpolation.antialias,
        align_corners=interpolation.align_corners,
    )
    return (resized.mT if turn else resized).to(values.dtype)


def resize_positions(
    embedding: Tensor, old: Grid, new: Grid, *, prefix: int, interpolation: Interpolation = ANTIALIASED
) -> Tensor:
    """Interpolate a learned embedding (prefix + N, D) from one grid to another in 2-D; prefix rows stay.

    The paper, section 3.2: fine-tuning at a higher resolution interpolates the pre-trained positions in 2-D.
    """
    if old == new:
        return embedding
    grid = embedding[prefix:].T.unflatten(1, old)[None]  # (1, D, rows, columns)
    return torch.cat([embedding[:prefix], resize_grid(grid, new, interpolation)[0].flatten(1).T])


def resizing_matrix(old: int, new: Tensor) -> Tensor:
    """Return the matrix (new, old) that interpolates along one side as `resize_grid` does; in a graph ``new`` may be symbolic.

    Row i weighs the old values around ``(i + ½) old / new`` by Keys' cubic kernel with a = −½ (Keys 1981). When the side
    shrinks, the kernel is widened to the distance of two new values.

    Args:
        old: number of old values along the side.
        new: 0, 1, 2, … up to the number of new values − 1, float.
    """
    scale = old / (new[-1] + 1)
    distance = torch.arange(old, device=new.device) + 0.5 - (new[:, None] + 0.5) * scale
    x = distance.abs() / scale.clamp(min=1)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights = torch.where(x < 1, near, torch.where(x < 2, far, 0.0))
    return weights / weights.sum(dim=1, keepdim=True)


def resize_factorised(table: Tensor, count: int, *, interpolation: Interpolation = ANTIALIASED) -> Tensor:
    """Interpolate the row or column table of a factorised position in 1-D: (n, D/2) to (count, D/2)."""
    return resize_positions(table, (1, len(table)), (1, count), prefix=0, interpolation=interpolation)


def resize_relative(
    table: Tensor, old: Grid, new: Grid, *, prefix_entries: int, interpolation: Interpolation = ANTIALIASED
) -> Tensor:
    """Interpolate the table of a relative bias from one grid to another, as a grid of offsets.

    The table has (2·rows − 1)(2·columns − 1) offsets, then ``prefix_entries`` (3, or 0 without prefix tokens) that stay as they
    are; its columns are heads.
    """
    if old == new:
        return table
    offsets, how = table[: len(table) - prefix_entries], interpolation.relative or interpolation
    resize = resize_geometrically if how.mode == "geometric" else partial(resize_positions, prefix=0, interpolation=how)
    resized = resize(offsets, offsets_of(old), offsets_of(new))
    return torch.cat([resized, table[len(offsets) :]])


def resize_geometrically(offsets: Tensor, old: Grid, new: Grid) -> Tensor:
    """Interpolate a grid of offsets (N, D) as timm does: old offsets are spaced geometrically, dense in the middle.

    Near neighbours thus keep their distance, whatever the grid. Values between two old offsets are interpolated linearly;
    BEiT's authors use cubic splines.
    """
    rows, columns = (_geometric_weights(*sides).to(offsets.device) for sides in zip(old, new, strict=True))
    grid = offsets.float().unflatten(0, old)
    return torch.einsum("ir,jc,rcd->ijd", rows, columns, grid).flatten(0, 1).to(offsets.dtype)


def _geometric_weights(old: int, new: int) -> Tensor:
    """Return the weight of each old offset for each new one along a side, (new, old)."""
    low, high = 1.01, 1.5  # bounds of the ratio between two successive steps outwards
    while high - low > 1e-6:
        ratio = (low + high) / 2
        reaches = (1 - ratio ** (old // 2)) / (1 - ratio) > new // 2
        low, high = (low, ratio) if reaches else (ratio, high)
    outwards = list(accumulate(ratio**step for step in range(old // 2)))
    places = [-place for place in reversed(outwards)] + [0.0, *outwards]
    wanted = np.arange(new) - new // 2
    return torch.from_numpy(np.stack([np.interp(wanted, places, each) for each in np.eye(old)], axis=1)).float()


def offsets_of(grid: Grid) -> Grid:
    """Return the number of different offsets between two rows, and between two columns."""
    return 2 * grid[0] - 1, 2 * grid[1] - 1
