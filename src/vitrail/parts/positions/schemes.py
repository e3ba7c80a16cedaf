"""Where a token stands: embeddings added to tokens, biases added to attention scores, rotations of q and k.

Tokens come as ``[prefix tokens; patches row by row]``. A grid is always explicit: (rows, columns). Every kind of position is made
for a grid and can be asked for another one: what is learned is interpolated, what is computed is computed anew.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.checks import require_multiple
from vitrail.parts.positions.interpolation import (
    ANTIALIASED,
    Grid,
    Interpolation,
    offsets_of,
    resize_factorised,
    resize_positions,
    resize_relative,
)

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines, each (…, N, D_h)."""
Coordinates = Literal["patches", "unit"]
"""Coordinates of a rotation; see `RotaryPosition2d`."""


def sincos_1d(positions: np.ndarray, dim: int) -> np.ndarray:
    """Compute ``PE(p, 2i) = sin(p / 10000^(2i/D))`` and its cosine (Vaswani et al. 2017); (N,) to (N, D), interleaved."""
    require_multiple("dim", dim, 2, "the 1-D sin-cos position")
    angles = _angles(positions, dim // 2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), dim)


def sincos_2d(grid: Grid, dim: int, *, endpoint: bool = False) -> np.ndarray:
    """Compute ``[sin x; cos x; sin y; cos y]``, a quarter of D each; (N, D).

    The rates of the waves fall from 1 to 1/10000, which the slowest wave has (``endpoint``: Beyer et al. 2022, big_vision and
    SimpleViT, https://arxiv.org/abs/2205.01580) or would have if there were one more (Chen et al. 2021, MoCo v3,
    https://arxiv.org/abs/2104.02057; MAE).
    """
    require_multiple("dim", dim, 4, "the 2-D sin-cos position")
    y, x = _coordinates(grid)
    angles_x, angles_y = _angles(x, dim // 4, endpoint=endpoint), _angles(y, dim // 4, endpoint=endpoint)
    return np.concatenate([np.sin(angles_x), np.cos(angles_x), np.sin(angles_y), np.cos(angles_y)], axis=1)


def _angles(positions: np.ndarray, count: int, base: float = 10_000.0, *, endpoint: bool = False) -> np.ndarray:
    """Compute ``p · base^(-i/count)`` for i below ``count``: (N,) to (N, count); with ``endpoint`` divided by ``count - 1``."""
    last = count - 1 if endpoint else count
    return positions[:, None] * base ** (-np.arange(count) / max(1, last))


def _coordinates(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of every patch, row by row: two arrays (N,)."""
    rows, columns = np.indices(grid, dtype=np.float64)
    return rows.ravel(), columns.ravel()


def _with_prefix(table: np.ndarray, prefix: int, value: float) -> Tensor:
    """Put ``prefix`` rows of ``value`` above ``table``, by NumPy, so that it has values even on "meta"."""
    return torch.from_numpy(np.pad(table, ((prefix, 0), (0, 0)), constant_values=value).astype(np.float32))


class FixedPosition(nn.Module):
    """A fixed table added to the tokens: ``x + E_pos``.

    Args:
        table: gives the rows (prefix + N, D) for a grid.
        grid: rows and columns.
        kept: whether the table is kept with the weights, as it may have been resized (`KeptPosition`).
    """

    embedding: Tensor

    def __init__(self, table: Callable[[Grid], Tensor], grid: Grid, *, kept: bool = False):
        super().__init__()
        self.table, self.grid = table, grid
        self.register_buffer("embedding", table(grid).clone(), persistent=kept)

    def forward(self, x: Tensor, grid: Grid | None = None) -> Tensor:
        table = self.embedding if grid in (None, self.grid) else self.table(grid).to(x.device)
        return x + table.to(x.dtype)


def sincos_position_1d(grid: Grid, dim: int, *, prefix: int) -> FixedPosition:
    """Build sin-cos positions 0, 1, 2, … over prefix tokens and patches alike, as in the CIFAR-10 lecture notes."""
    return FixedPosition(partial(_sincos_1d_table, dim, prefix), grid)


def sincos_position_2d(grid: Grid, dim: int, *, prefix: int, endpoint: bool = False) -> FixedPosition:
    """Build 2-D sin-cos positions of the patches, see `sincos_2d`; prefix tokens get zero."""
    return FixedPosition(partial(_sincos_2d_table, dim, prefix, endpoint), grid)


class KeptPosition(FixedPosition):
    """The table of `sincos_position_1d`, which is kept with the weights and for another grid interpolated, as T2T-ViT has it."""

    def __init__(self, grid: Grid, dim: int, *, prefix: int):
        super().__init__(partial(_sincos_1d_table, dim, prefix), grid, kept=True)
        self.prefix = prefix

    def forward(self, x: Tensor, grid: Grid | None = None) -> Tensor:
        return x + resize_positions(self.embedding, self.grid, grid or self.grid, prefix=self.prefix)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # it is kept, and may be asked for gradients later
def _sincos_1d_table(dim: int, prefix: int, grid: Grid) -> Tensor:
    count = prefix + grid[0] * grid[1]
    return _with_prefix(sincos_1d(np.arange(count, dtype=np.float64), dim), 0, 0.0)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # it is kept, and may be asked for gradients later
def _sincos_2d_table(dim: int, prefix: int, endpoint: bool, grid: Grid) -> Tensor:
    return _with_prefix(sincos_2d(grid, dim, endpoint=endpoint), prefix, 0.0)


class LearnedPosition1d(nn.Module):
    """One learned vector per token, E_pos of equation (1): (prefix + N, D), added to (B, prefix + N, D).

    ``interpolation`` is how they are resized to another grid. With ``shared`` one more vector (D,) is added to every token.
    """

    def __init__(self, grid: Grid, dim: int, *, prefix: int, interpolation: Interpolation = ANTIALIASED, shared: bool = False):
        super().__init__()
        self.grid, self.prefix, self.interpolation = grid, prefix, interpolation
        self.embedding = nn.Parameter(torch.empty(prefix + grid[0] * grid[1], dim))
        nn.init.normal_(self.embedding, std=0.02)
        self.shared = nn.Parameter(torch.zeros(dim)) if shared else None

    def forward(self, x: Tensor, grid: Grid | None = None) -> Tensor:
        x = x + resize_positions(
            self.embedding, self.grid, grid or self.grid, prefix=self.prefix, interpolation=self.interpolation
        )
        return x if self.shared is None else x + self.shared


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

    def forward(self, x: Tensor, grid: Grid | None = None) -> Tensor:
        rows, columns = grid or (len(self.rows), len(self.columns))
        return x + self.of(resize_factorised(self.rows, rows), resize_factorised(self.columns, columns))

    def of(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the table of all tokens, (prefix + N, D), from one for the rows and one for the columns, (n, D/2) each."""
        height, width = rows.shape[0], columns.shape[0]
        pairs = [rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)]
        table = torch.cat(pairs, dim=-1).flatten(0, 1)  # (N, D)
        return table if self.prefix is None else torch.cat([self.prefix, table])


class RelativePositionBias(nn.Module):
    """A learned bias per head and offset between two patches, added to the scores of equation (6).

    Liu et al. 2021 (https://arxiv.org/abs/2103.14030); prefix tokens share three more entries, as in BEiT
    (https://arxiv.org/abs/2106.08254): prefix to patch, patch to prefix, prefix to prefix. With ``blocks`` every block
    has a table of its own. ``unused`` entries more are never read: MDT has BEiT's three, and no prefix.
    """

    index: Tensor

    def __init__(self, grid: Grid, heads: int, *, prefix: int, blocks: int | None = None, unused: int = 0):
        super().__init__()
        self.grid, self.prefix, self.further = grid, prefix, 3 if prefix else unused
        entries = math.prod(offsets_of(grid)) + self.further
        if blocks is None:
            self.table = nn.Parameter(torch.empty(entries, heads))
        else:
            self.tables = nn.ParameterList(torch.empty(entries, heads) for _ in range(blocks))
        for table in self.parameters():
            nn.init.normal_(table, std=0.02)
        self.register_buffer("index", _relative_index(grid, prefix).clone(), persistent=False)

    def forward(self, grid: Grid | None = None) -> Tensor | tuple[Tensor, ...]:
        """Return the bias (heads, prefix + N, prefix + N), or a tuple of one for each block."""
        if hasattr(self, "table"):
            return self._of(self.table, grid)
        return tuple(self._of(table, grid) for table in self.tables)

    def between(self, tokens: Tensor) -> Tensor:
        """Return the bias between some tokens of each image, by their numbers (B, K): (B, heads, K, K)."""
        index = self.index[tokens[:, :, None], tokens[:, None]]  # (B, K, K)
        return self.table[index].permute(0, 3, 1, 2)

    def _of(self, table: Tensor, grid: Grid | None) -> Tensor:
        if grid in (None, self.grid):
            return table[self.index].permute(2, 0, 1)
        table = resize_relative(table, self.grid, grid, prefix_entries=self.further)
        return table[_relative_index(grid, self.prefix).to(table.device)].permute(2, 0, 1)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # it is kept, and may be asked for gradients later
def _relative_index(grid: Grid, prefix: int) -> Tensor:
    """Return the entry of the table for every pair of tokens: (prefix + N, prefix + N)."""
    offsets = math.prod(offsets_of(grid))
    y, x = (c.astype(np.int64) for c in _coordinates(grid))
    index = (y[:, None] - y + grid[0] - 1) * offsets_of(grid)[1] + (x[:, None] - x + grid[1] - 1)
    index = np.pad(index, ((prefix, 0), (prefix, 0)), constant_values=offsets)
    index[prefix:, :prefix], index[:prefix, :prefix] = offsets + 1, offsets + 2
    return torch.from_numpy(index)


class RotaryPosition2d(nn.Module):
    """Rotations of q and k by the patch's row and column, so that scores depend on the offset alone.

    Su et al. 2021 (https://arxiv.org/abs/2104.09864), axial in 2-D: of the D_h/2 planes the first half turns with the
    row, the second with the column. Prefix tokens are not turned.

    Args:
        grid: rows and columns.
        head_dim: width D_h of a head, a multiple of 4.
        prefix: tokens before the patches.
        base: plane i of n turns by ``coordinate · base^(-i/n)``; 100 is usual for grids.
        coordinates: "patches" counts them from 0; "unit" places their centres between −1 and 1 on both sides, times 2π
            (DINOv3; Siméoni et al. 2025, https://arxiv.org/abs/2508.10104).
        reference: coordinates that count patches are scaled as if there were so many rows and columns, so that another grid
            covers the same range (EVA-02; Fang et al. 2023, https://arxiv.org/abs/2303.11331).
        offset: the first coordinate where they count patches.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        grid: Grid,
        head_dim: int,
        *,
        prefix: int,
        base: float = 100.0,
        coordinates: Coordinates = "patches",
        reference: Grid | None = None,
        offset: float = 0.0,
    ):
        super().__init__()
        require_multiple("head width (dim / heads)", head_dim, 4, "the 2-D rotary position")
        self.grid = grid
        self.table = partial(_rotation, head_dim, prefix, base, coordinates, reference, offset)
        cos, sin = self.table(grid)
        self.register_buffer("cos", cos.clone(), persistent=False)
        self.register_buffer("sin", sin.clone(), persistent=False)

    def forward(self, grid: Grid | None = None) -> Rotation:
        """Return cosines and sines, each (prefix + N, D_h)."""
        if grid in (None, self.grid):
            return self.cos, self.sin
        cos, sin = self.table(grid)
        return cos.to(self.cos.device), sin.to(self.sin.device)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # it is kept, and may be asked for gradients later
def _rotation(
    head_dim: int, prefix: int, base: float, coordinates: Coordinates, reference: Grid | None, offset: float, grid: Grid
) -> Rotation:
    sides = zip(_coordinates(grid), grid, reference or grid, strict=True)
    if coordinates == "unit":
        y, x = (2 * math.pi * (2 * (place + 0.5) / count - 1) for place, count, _ in sides)
    else:
        y, x = ((place + offset) * (wanted / count) for place, count, wanted in sides)
    angles = np.concatenate([_angles(y, head_dim // 4, base), _angles(x, head_dim // 4, base)], axis=1)
    angles = np.tile(angles, 2)  # (N, D_h): entry i and entry i + D_h/2 form one plane
    return _with_prefix(np.cos(angles), prefix, 1.0), _with_prefix(np.sin(angles), prefix, 0.0)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the planes (i, i + D_h/2) of ``x`` (…, N, D_h) by the angles of ``rotation``."""
    cos, sin = (t.to(x.dtype) for t in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
