"""Multi-scale deformable attention (Zhu et al. 2021, https://arxiv.org/abs/2010.04159)."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.checks import require_divisible
from vitrail.parts.normalization import norm_layer
from vitrail.parts.positions.interpolation import Grid

POINTS = 4
"""Points that a head samples in every level."""


class DeformableAttention(nn.Module):
    """Cross-attention that samples a few points of feature maps: queries (B, Q, D) and a context (B, S, D) to (B, Q, D).

    From a query, linear layers compute where each head samples each level, relative to the query's own position, and the weights
    of the samples. The context is the levels' positions, row by row, one level after the other.

    At first the samples are on rays from the query's position, one ray for each head, and their weights are equal.

    Args:
        dim: width D.
        heads: number of heads k.
        levels: number of levels in the context.
        ratio: width of all values together, divided by D.
        norm_eps: epsilon of the norm on the context.
    """

    def __init__(self, dim: int, heads: int, *, levels: int = 1, ratio: float = 1.0, norm_eps: float = 1e-6):
        super().__init__()
        require_divisible("width of the values", width := int(dim * ratio), "heads", heads)
        self.heads, self.levels = heads, levels
        self.norm = norm_layer(dim, eps=norm_eps)
        self.value = nn.Linear(dim, width)
        self.offsets = nn.Linear(dim, heads * levels * POINTS * 2)
        self.weights = nn.Linear(dim, heads * levels * POINTS)
        self.output = nn.Linear(width, dim)
        self.initialize()

    def initialize(self) -> None:
        """Sample new weights: Xavier's uniform for values and output; offsets and weights do not depend on the query."""
        for layer in (self.offsets, self.weights):
            nn.init.zeros_(layer.weight)
        for layer in (self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.value, self.weights, self.output):
            nn.init.zeros_(layer.bias)
        angle = torch.arange(self.heads, device="cpu") * (2 * math.pi / self.heads)
        rays = torch.stack([angle.cos(), angle.sin()], dim=-1)
        rays = rays / rays.abs().amax(dim=-1, keepdim=True)  # on the border of a square
        steps = torch.arange(1, POINTS + 1, device="cpu")[:, None]  # (P, 1)
        with torch.no_grad():
            self.offsets.bias.copy_((rays[:, None, None] * steps).expand(-1, self.levels, -1, -1).flatten())

    def forward(self, x: Tensor, *, context: Tensor, grids: Sequence[Grid], places: Tensor) -> Tensor:
        """Attend from queries (B, Q, D) to a context (B, S, D).

        Args:
            x: the queries.
            context: the positions of all levels.
            grids: rows and columns of each level.
            places: position (x, y) of each query on each level, in cells from the upper left corner: (levels, Q, 2), float32.
        """
        values = self.value(self.norm(context)).mT  # (B, width, S)
        shape = (self.heads, self.levels, POINTS)
        offsets = self.offsets(x).unflatten(-1, (*shape, 2)).permute(3, 0, 2, 1, 4, 5)  # (levels, B, k, Q, P, 2)
        weights = self.weights(x).unflatten(-1, (self.heads, -1)).softmax(dim=-1)
        weights = weights.unflatten(-1, shape[1:]).permute(3, 0, 2, 1, 4)  # (levels, B, k, Q, P)
        return self.output(sample_levels(values, grids, places[:, None, None, :, None] + offsets, weights))


def sample_levels(values: Tensor, grids: Sequence[Grid], points: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sums of values at points between the cells of several levels: (B, Q, width).

    Values are interpolated bilinearly, and are zero outside of a level. Computed in float32, since half precision has too few
    digits for positions.

    Args:
        values: (B, width, S), the cells of all levels, row by row; ``width`` is split among k heads.
        grids: rows and columns of each level.
        points: (levels, B, k, Q, P, 2), (x, y) in cells of the level from its upper left corner.
        weights: (levels, B, k, Q, P).
    """
    batch, heads = points.shape[1:3]
    of_levels = values.float().split([rows * columns for rows, columns in grids], dim=2)
    total: Tensor | None = None
    for (rows, columns), level, own, weight in zip(grids, of_levels, points.float(), weights.float(), strict=True):
        maps = level.reshape(batch * heads, -1, rows, columns)
        grid = own.flatten(0, 1) * own.new_tensor([2 / columns, 2 / rows]) - 1  # (B·k, Q, P, 2), from −1 to 1
        sampled = F.grid_sample(maps, grid, mode="bilinear", padding_mode="zeros", align_corners=False)  # (B·k, D_h, Q, P)
        summed = (sampled * weight.flatten(0, 1)[:, None]).sum(dim=-1)  # (B·k, D_h, Q)
        total = summed if total is None else total + summed
    assert total is not None, "there is at least one level"
    return total.unflatten(0, (batch, heads)).flatten(1, 2).mT.to(values.dtype)


def cell_places(
    queries: Sequence[tuple[Grid, tuple[int, int]]], levels: Sequence[tuple[int, int]], device: torch.device
) -> Tensor:
    """Return the centres of queries' cells on other levels: (levels, Q, 2), (x, y) in cells of each level, float32.

    Args:
        queries: the grids of the queries, one after the other, with their strides.
        levels: strides of the levels.
        device: where the result is.
    """
    pixels = []
    for (rows, columns), (down, across) in queries:
        y = (torch.arange(rows, device=device) + 0.5) * down
        x = (torch.arange(columns, device=device) + 0.5) * across
        pixels.append(torch.stack([x.expand(rows, -1), y[:, None].expand(-1, columns)], dim=-1).flatten(0, 1))
    centres = torch.cat(pixels)  # (Q, 2)
    return torch.stack([centres / centres.new_tensor([across, down]) for down, across in levels])
