"""Where a token stands: embeddings added to tokens, biases added to attention scores, rotations of q and k.

Tokens come as ``[prefix tokens; patches row by row]``. A grid is always explicit: (rows, columns).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.checks import require_multiple


@dataclass(frozen=True)
class Interpolation:
    """How values on one grid become values on another; libraries differ in it."""

    mode: Literal["bicubic", "bilinear"] = "bicubic"
    antialias: bool = True
    """Whether a smaller grid averages what it leaves out; torch's bicubic then has another kernel, too."""
    align_corners: bool = False
    """Whether the outermost values stay in place, or the outer edges do."""


ANTIALIASED = Interpolation()
"""Ours, as timm's."""

Grid = tuple[int, int]
Rotation = tuple[Tensor, Tensor]
"""Cosines and sines, each (…, N, D_h)."""


def sincos_1d(positions: np.ndarray, dim: int) -> np.ndarray:
    """Vaswani et al. 2017: ``PE(p, 2i) = sin(p / 10000^(2i/D))``, ``PE(p, 2i+1)`` its cosine; (N,) to (N, D), interleaved."""
    require_multiple("dim", dim, 2, "the 1-D sin-cos position")
    angles = _angles(positions, dim // 2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), dim)


def sincos_2d(grid: Grid, dim: int, *, endpoint: bool = False) -> np.ndarray:
    """``[sin x; cos x; sin y; cos y]``, a quarter of D each; (N, D).

    The rates of the waves fall from 1 to 1/10000, which the slowest wave has (``endpoint``: Beyer et al. 2022, big_vision and
    SimpleViT, https://arxiv.org/abs/2205.01580) or would have if there were one more (Chen et al. 2021, MoCo v3,
    https://arxiv.org/abs/2104.02057; MAE).
    """
    require_multiple("dim", dim, 4, "the 2-D sin-cos position")
    y, x = _coordinates(grid)
    angles_x, angles_y = _angles(x, dim // 4, endpoint=endpoint), _angles(y, dim // 4, endpoint=endpoint)
    return np.concatenate([np.sin(angles_x), np.cos(angles_x), np.sin(angles_y), np.cos(angles_y)], axis=1)


def _angles(positions: np.ndarray, count: int, base: float = 10_000.0, *, endpoint: bool = False) -> np.ndarray:
    """``p · base^(-i/count)`` for i below ``count``: (N,) to (N, count); with ``endpoint`` ``p · base^(-i/(count - 1))``."""
    last = count - 1 if endpoint else count
    return positions[:, None] * base ** (-np.arange(count) / max(1, last))


def _coordinates(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every patch, row by row: two arrays (N,)."""
    rows, columns = np.indices(grid, dtype=np.float64)
    return rows.ravel(), columns.ravel()


def _with_prefix(table: np.ndarray, prefix: int, value: float) -> Tensor:
    """``table`` below ``prefix`` rows of ``value``. Made by NumPy, so that it exists even when a model is built on "meta"."""
    return torch.from_numpy(np.pad(table, ((prefix, 0), (0, 0)), constant_values=value).astype(np.float32))


def resize_grid(values: Tensor, grid: Grid, interpolation: Interpolation = ANTIALIASED) -> Tensor:
    """Interpolate (B, C, rows, columns) to another grid; same precision, computed in single or better."""
    turn = grid[1] == 1  # torch 2.13 on CPU fills a result of one column with its first value; of one row it does not
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
    """`resize_grid` along one side as a product, (new, old), of which ``new`` may be unknown while a graph is made of it.

    Row i weighs the old values around ``(i + ½) old / new`` by Keys' cubic kernel with a = −½ (Keys 1981), as wide as what lies
    between two new values, where those are fewer.

    Args:
        old: values along the side.
        new: 0, 1, 2, … for each of the new ones, float.
    """
    scale = old / (new[-1] + 1)
    distance = torch.arange(old, device=new.device) + 0.5 - (new[:, None] + 0.5) * scale
    x = distance.abs() / scale.clamp(min=1)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights = torch.where(x < 1, near, torch.where(x < 2, far, 0.0))
    return weights / weights.sum(dim=1, keepdim=True)


def resize_factorised(table: Tensor, count: int, *, interpolation: Interpolation = ANTIALIASED) -> Tensor:
    """Interpolate the rows, or the columns, of `LearnedPosition2d` in 1-D: (n, D/2) to (count, D/2)."""
    return resize_positions(table, (1, len(table)), (1, count), prefix=0, interpolation=interpolation)


def resize_relative(
    table: Tensor, old: Grid, new: Grid, *, prefix_entries: int, interpolation: Interpolation = ANTIALIASED
) -> Tensor:
    """Interpolate the table of `RelativePositionBias` from one grid to another, as a grid of offsets.

    (2·rows − 1)(2·columns − 1) offsets and ``prefix_entries`` (3, or 0 without prefix tokens), which stay, by heads.
    """
    if old == new:
        return table
    offsets = table[: len(table) - prefix_entries]
    resized = resize_positions(offsets, _offsets(old), _offsets(new), prefix=0, interpolation=interpolation)
    return torch.cat([resized, table[len(offsets) :]])


def _offsets(grid: Grid) -> Grid:
    """How many different offsets there are between two rows, and between two columns."""
    return 2 * grid[0] - 1, 2 * grid[1] - 1


class FixedPosition(nn.Module):
    """A fixed table added to the tokens: ``x + E_pos``."""

    embedding: Tensor

    def __init__(self, table: Tensor):
        super().__init__()
        self.register_buffer("embedding", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embedding.to(x.dtype)


def sincos_position_1d(grid: Grid, dim: int, *, prefix: int) -> FixedPosition:
    """Sin-cos positions 0, 1, 2, … over prefix tokens and patches alike, as in the CIFAR-10 lecture notes."""
    count = prefix + grid[0] * grid[1]
    return FixedPosition(_with_prefix(sincos_1d(np.arange(count, dtype=np.float64), dim), 0, 0.0))


def sincos_position_2d(grid: Grid, dim: int, *, prefix: int, endpoint: bool = False) -> FixedPosition:
    """2-D sin-cos positions of the patches, see `sincos_2d`; prefix tokens get zero."""
    return FixedPosition(_with_prefix(sincos_2d(grid, dim, endpoint=endpoint), prefix, 0.0))


class LearnedPosition1d(nn.Module):
    """One learned vector per token, E_pos of equation (1): (prefix + N, D), added to (B, prefix + N, D)."""

    def __init__(self, grid: Grid, dim: int, *, prefix: int):
        super().__init__()
        self.grid, self.prefix = grid, prefix
        self.embedding = nn.Parameter(torch.empty(prefix + grid[0] * grid[1], dim))
        nn.init.normal_(self.embedding, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embedding


class LearnedPosition2d(nn.Module):
    """One learned vector per row and one per column, D/2 wide each, concatenated (the paper, appendix D.4)."""

    def __init__(self, grid: Grid, dim: int, *, prefix: int):
        super().__init__()
        require_multiple("dim", dim, 2, "the factorised 2-D position")
        self.rows = nn.Parameter(torch.empty(grid[0], dim // 2))
        self.columns = nn.Parameter(torch.empty(grid[1], dim // 2))
        self.prefix = nn.Parameter(torch.empty(prefix, dim)) if prefix else None
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.of(self.rows, self.columns)

    def of(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The table of all tokens, (prefix + N, D), from that of the rows and that of the columns, (n, D/2)."""
        height, width = rows.shape[0], columns.shape[0]
        pairs = [rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)]
        table = torch.cat(pairs, dim=-1).flatten(0, 1)  # (N, D)
        return table if self.prefix is None else torch.cat([self.prefix, table])


class RelativePositionBias(nn.Module):
    """A learned bias per head and offset between two patches, added to the scores of equation (6).

    Liu et al. 2021 (https://arxiv.org/abs/2103.14030); prefix tokens share three more entries, as in BEiT
    (https://arxiv.org/abs/2106.08254): prefix to patch, patch to prefix, prefix to prefix.
    """

    index: Tensor

    def __init__(self, grid: Grid, heads: int, *, prefix: int):
        super().__init__()
        offsets = math.prod(_offsets(grid))
        self.table = nn.Parameter(torch.empty(offsets + (3 if prefix else 0), heads))
        nn.init.normal_(self.table, std=0.02)
        y, x = (c.astype(np.int64) for c in _coordinates(grid))
        index = (y[:, None] - y + grid[0] - 1) * _offsets(grid)[1] + (x[:, None] - x + grid[1] - 1)
        index = np.pad(index, ((prefix, 0), (prefix, 0)), constant_values=offsets)
        index[prefix:, :prefix], index[:prefix, :prefix] = offsets + 1, offsets + 2
        self.register_buffer("index", torch.from_numpy(index), persistent=False)

    def forward(self) -> Tensor:
        """(heads, prefix + N, prefix + N)."""
        return self.table[self.index].permute(2, 0, 1)


class RotaryPosition2d(nn.Module):
    """Rotations of q and k by the patch's row and column, so that scores depend on the offset alone.

    Su et al. 2021 (https://arxiv.org/abs/2104.09864), axial in 2-D: of the D_h/2 planes the first half turns with the
    row, the second with the column. Prefix tokens are not turned. Coordinates count patches; ``base`` is 100 as usual
    for grids.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, grid: Grid, head_dim: int, *, prefix: int, base: float = 100.0):
        super().__init__()
        require_multiple("head width (dim / heads)", head_dim, 4, "the 2-D rotary position")
        y, x = _coordinates(grid)
        angles = np.concatenate([_angles(y, head_dim // 4, base), _angles(x, head_dim // 4, base)], axis=1)
        angles = np.tile(angles, 2)  # (N, D_h): entry i and entry i + D_h/2 form one plane
        self.register_buffer("cos", _with_prefix(np.cos(angles), prefix, 1.0), persistent=False)
        self.register_buffer("sin", _with_prefix(np.sin(angles), prefix, 0.0), persistent=False)

    def forward(self) -> Rotation:
        """Cosines and sines, each (prefix + N, D_h)."""
        return self.cos, self.sin


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the planes (i, i + D_h/2) of ``x`` (…, N, D_h) by the angles of ``rotation``."""
    cos, sin = (t.to(x.dtype) for t in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
