"""Tokens that know where they stand, on grids of any size."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from random_weights import randomize
from vitrail.parts import GridEmbedding, Interpolation, LearnedPosition1d, PositionedEmbedding

BILINEAR = Interpolation("bilinear", antialias=False)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def embedding(prefix: int) -> PositionedEmbedding:
    position = LearnedPosition1d((4, 6), 8, prefix=prefix, interpolation=BILINEAR)
    return randomize(PositionedEmbedding(3, 8, 2, position), std=0.3)


def positions(layer: PositionedEmbedding, grid: tuple[int, int]) -> Tensor:
    """By hand: (prefix + N, D)."""
    prefix, table = layer.position.prefix, layer.position.embedding
    patches = F.interpolate(table[prefix:].T.reshape(1, 8, 4, 6), grid, mode="bilinear")
    return torch.cat([table[:prefix], patches[0].flatten(1).T])


@pytest.mark.parametrize("grid", [(4, 6), (8, 3), (1, 1)])
def test_positions_of_the_grid_are_added(grid):
    layer, x = embedding(0), numbers(2, 2 * grid[0], 2 * grid[1], 3)
    patches = GridEmbedding.forward(layer, x)
    torch.testing.assert_close(layer(x), patches + positions(layer, grid).unflatten(0, grid))


@pytest.mark.parametrize("grid", [(4, 6), (3, 7)])
def test_a_class_token_stands_first_with_a_position_of_its_own(grid):
    layer, x = embedding(1), numbers(2, 2 * grid[0], 2 * grid[1], 3)
    patches = GridEmbedding.forward(layer, x).flatten(1, 2)
    expected = torch.cat([layer.class_token.expand(2, -1, -1), patches], dim=1) + positions(layer, grid)
    torch.testing.assert_close(layer(x), expected)


def test_tokens_with_their_positions_are_dropped_in_training():
    position = LearnedPosition1d((4, 4), 64, prefix=1)
    layer = PositionedEmbedding(3, 64, 2, position, dropout=0.5).train()
    share = (layer(torch.randn(8, 8, 8, 3)) == 0).float().mean().item()
    assert share == pytest.approx(0.5, abs=0.03)
