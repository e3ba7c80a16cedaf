"""Coarser and coarser grids, against convolutions and sums by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from random_weights import randomize
from vitrail.parts import GridEmbedding, Interpolation, LearnedPosition1d, PatchMerging, PositionedEmbedding


@pytest.mark.parametrize(("stride", "padding"), [(None, 0), (2, 1)])
def test_tokens_are_a_convolution_with_a_norm(stride, padding):
    made, images = GridEmbedding(3, 8, 3, stride=stride, padding=padding), torch.randn(2, 3, 9, 12)
    expected = F.conv2d(images, made.projection.weight, made.projection.bias, stride=stride or 3, padding=padding)
    expected = F.layer_norm(expected.permute(0, 2, 3, 1), (8,), made.norm.weight, made.norm.bias, 1e-5)
    torch.testing.assert_close(made(images.permute(0, 2, 3, 1)), expected)


def test_a_remainder_is_left_out_or_filled_with_zeros():
    images = torch.randn(1, 10, 8, 3)
    left, filled = GridEmbedding(3, 4, 4), GridEmbedding(3, 4, 4, pad=True)
    filled.load_state_dict(left.state_dict())
    assert left(images).shape == (1, 2, 2, 4) and filled(images).shape == (1, 3, 2, 4)
    torch.testing.assert_close(filled(images)[:, :2], left(images))
    whole = torch.cat([images, torch.zeros(1, 2, 8, 3)], dim=1)
    torch.testing.assert_close(filled(images), left(whole))


@pytest.mark.parametrize("side", [1, 2, 3])
def test_a_side_below_a_patch_is_filled_to_one_and_no_further(side):
    framed, plain = GridEmbedding(3, 4, 5, stride=2, padding=2), GridEmbedding(3, 4, 4)
    images = torch.randn(1, side, 8, 3)
    convolved = F.conv2d(images.permute(0, 3, 1, 2), framed.projection.weight, framed.projection.bias, stride=2, padding=2)
    torch.testing.assert_close(framed(images), framed.norm(convolved.permute(0, 2, 3, 1)))
    torch.testing.assert_close(plain(images), plain(F.pad(images, (0, 0, 0, 0, 0, 4 - side))))


def test_four_neighbours_become_one_in_the_order_of_the_paper():
    made = PatchMerging(2)
    x = torch.arange(5 * 3 * 2, dtype=torch.float32).view(1, 5, 3, 2)
    merged = made(x)
    assert merged.shape == (1, 3, 2, 4)
    first = torch.cat([x[0, 2, 0], x[0, 3, 0], x[0, 2, 1], x[0, 3, 1]])
    torch.testing.assert_close(merged[0, 1, 0], made.reduction(made.norm(first)))
    corner = torch.cat([x[0, 4, 2], torch.zeros(6)])
    torch.testing.assert_close(merged[0, 2, 1], made.reduction(made.norm(corner)))


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
