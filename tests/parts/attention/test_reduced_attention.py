"""Keys and values of a coarser grid: what each token sees, by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from random_weights import randomize
from vitrail.parts import Attention, GridEmbedding, PooledReduction, ReducedAttention


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def reduced(side: int) -> ReducedAttention:
    return randomize(ReducedAttention(8, 2, GridEmbedding(8, 8, side)), std=0.3)


def test_every_token_sees_the_image_as_means_by_the_convolution():
    layer, x = reduced(2), numbers(2, 4, 6, 8)
    cells = x.unflatten(2, (3, 2)).unflatten(1, (2, 2)).transpose(2, 3)  # (B, 2, 3, 2, 2, D)
    weight = layer.reduction.projection.weight.permute(0, 2, 3, 1).flatten(1)
    coarse = F.layer_norm(
        cells.flatten(3) @ weight.T + layer.reduction.projection.bias,
        (8,),
        layer.reduction.norm.weight,
        layer.reduction.norm.bias,
    )
    expected = layer.attention(x.flatten(1, 2), coarse.flatten(1, 2))
    torch.testing.assert_close(layer(x), expected.view_as(x))


@pytest.mark.parametrize("reduction", [GridEmbedding(8, 8, 2), GridEmbedding(8, 8, 3), PooledReduction(8, side=3)])
@pytest.mark.parametrize("grid", [(6, 7), (2, 9), (4, 1)])
def test_keys_stand_in_the_middle_of_the_places_that_they_are_made_of(reduction, grid):
    queries, keys = ReducedAttention(8, 2, reduction).places(grid)
    x = torch.randn(1, *grid, 8, requires_grad=True)
    made = reduction(x)[0].flatten(0, 1) @ torch.randn(8)
    for key, place in zip(made, keys, strict=True):
        (gradient,) = torch.autograd.grad(key, x, retain_graph=True)
        torch.testing.assert_close(gradient[0].any(dim=-1).nonzero().float().mean(dim=0), place)
    assert queries.tolist() == [[row, column] for row in range(grid[0]) for column in range(grid[1])]


@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (2, 5, 8)])
def test_without_a_reduction_it_is_attention_to_all(shape):
    layer, x = randomize(ReducedAttention(8, 2, None), std=0.3), numbers(*shape)
    tokens, plain = x.flatten(1, -2), Attention(8, 2, context_dim=8).double()
    plain.load_state_dict(layer.attention.state_dict())
    torch.testing.assert_close(layer(x), plain(tokens, tokens).view_as(x))


@pytest.mark.parametrize("grid", [(6, 9), (2, 1), (7, 5)])
def test_pooling_gives_means_of_shares_of_the_grid(grid):
    layer, x = randomize(PooledReduction(8, side=3), std=0.3), numbers(2, *grid, 8)
    spans = [[(side * i // 3, -(-side * (i + 1) // 3)) for i in range(3)] for side in grid]
    means = torch.stack([torch.stack([x[:, a:b, c:d].mean(dim=(1, 2)) for c, d in spans[1]], 1) for a, b in spans[0]], 1)
    projected = F.linear(means, layer.projection.weight.flatten(1), layer.projection.bias)
    expected = F.gelu(F.layer_norm(projected, (8,), layer.norm.weight, layer.norm.bias))
    torch.testing.assert_close(layer(x), expected)
    assert PooledReduction(8).double()(x).shape == (2, 7, 7, 8)
