"""Deformable attention: equal to transformers', with gradients, and at first a star of points around each query."""

import pytest
import torch
from transformers.models.deformable_detr.configuration_deformable_detr import DeformableDetrConfig
from transformers.models.deformable_detr.modeling_deformable_detr import (
    DeformableDetrMultiscaleDeformableAttention,
    MultiScaleDeformableAttention,
)

from vitrail.errors import ConfigError
from vitrail.parts import DeformableAttention, cell_places, sample_levels

GRIDS = [(7, 5), (4, 3), (2, 1)]
CELLS = sum(rows * columns for rows, columns in GRIDS)


def sampled(dtype=torch.float32) -> tuple[torch.Tensor, ...]:
    """Return values (B, S, k, D_h), points from 0 to 1 with some outside, and weights, in transformers' order of dimensions."""
    torch.manual_seed(0)
    values, points = torch.randn(2, CELLS, 4, 6), torch.rand(2, 9, 4, 3, 4, 2) * 1.4 - 0.2
    weights = torch.rand(2, 9, 4, 3, 4).flatten(-2).softmax(-1).unflatten(-1, (3, 4))
    return tuple(tensor.to(dtype).requires_grad_() for tensor in (values, points, weights))


def ours(values, points, weights) -> torch.Tensor:
    cells = torch.tensor([[columns, rows] for rows, columns in GRIDS])
    points = (points * cells[:, None]).permute(3, 0, 2, 1, 4, 5)  # from the part of a side to cells
    return sample_levels(values.flatten(2).mT, GRIDS, points, weights.permute(3, 0, 2, 1, 4))


def test_samples_and_their_gradients_are_those_of_transformers():
    sizes = torch.tensor(GRIDS)
    given, again = sampled(), sampled()
    expected = MultiScaleDeformableAttention()(again[0], sizes, GRIDS, None, again[1], again[2], 64)
    found = ours(*given)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    direction = torch.randn_like(found)
    for own, other in zip(
        torch.autograd.grad(found, given, direction), torch.autograd.grad(expected, again, direction), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-5)
        assert own.any()


def test_the_layer_is_that_of_transformers_with_a_norm_on_the_context():
    torch.manual_seed(0)
    config = DeformableDetrConfig(d_model=24, num_feature_levels=3)
    theirs = DeformableDetrMultiscaleDeformableAttention(config, num_heads=6, n_points=4).eval()
    layer = DeformableAttention(24, 6, levels=3)
    names = {"value": "value_proj", "offsets": "sampling_offsets", "weights": "attention_weights", "output": "output_proj"}
    with torch.no_grad():
        for own, other in names.items():
            getattr(layer, own).weight.normal_(std=0.5)
            getattr(theirs, other).load_state_dict(getattr(layer, own).state_dict())
    x, context = torch.randn(2, 12, 24), torch.randn(2, CELLS, 24)
    places = cell_places([((4, 3), (8, 8))], [(4, 4), (8, 8), (16, 16)], x.device)  # each level covers 28×20 pixels or more
    cells = torch.tensor([[columns, rows] for rows, columns in GRIDS])
    points = (places / cells[:, None]).permute(1, 0, 2).expand(2, -1, -1, -1)  # (B, Q, levels, 2), parts of a side
    found = layer(x, context=context, grids=GRIDS, places=places)
    expected, _ = theirs(
        x, encoder_hidden_states=layer.norm(context), reference_points=points, spatial_shapes=torch.tensor(GRIDS),
        spatial_shapes_list=GRIDS, level_start_index=torch.tensor([0, 35, 47]),
    )  # fmt: skip
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_new_layer_samples_a_star_around_its_query_with_equal_weights():
    layer = DeformableAttention(16, 4)
    rays = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    expected = torch.tensor([[(n * x, n * y) for n in range(1, 5)] for x, y in rays]).float()
    torch.testing.assert_close(layer.offsets.bias.unflatten(0, (4, 4, 2)), expected, atol=1e-5, rtol=0)
    with torch.no_grad():
        layer.norm.bias.copy_(torch.arange(16.0))
    context = torch.zeros(1, 36, 16)  # the same value everywhere
    value = layer.output(layer.value(layer.norm(context)))[0, 0]
    found = layer(torch.randn(1, 1, 16), context=context, grids=[(6, 6)], places=torch.full((1, 1, 2), 3.0))
    # from the middle of 6×6 cells, the third point of a ray is on the border and the fourth outside, where all is zero
    torch.testing.assert_close(found[0, 0], value * (1 + 1 + 0.5 + 0) / 4)


def test_centres_of_cells_are_where_their_pixels_are_on_every_level():
    places = cell_places([((2, 3), (8, 8)), ((1, 2), (14, 10))], [(8, 8), (4, 16)], torch.device("cpu"))
    assert places.shape == (2, 8, 2)
    assert places[0, :4].tolist() == [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [0.5, 1.5]]
    assert places[1, 5].tolist() == [20 / 16, 12 / 4]  # pixel (20, 12)
    assert places[0, 7].tolist() == [15 / 8, 7 / 8]


def test_under_autocast_positions_keep_their_digits_and_gradients_reach_everything():
    torch.manual_seed(1)
    layer, places = DeformableAttention(16, 2), cell_places([((40, 40), (16, 16))], [(16, 16)], torch.device("cpu"))
    torch.nn.init.normal_(layer.offsets.weight, std=0.1)
    x, context = torch.randn(1, 1600, 16, requires_grad=True), torch.randn(1, 1600, 16, requires_grad=True)
    exact = layer(x, context=context, grids=[(40, 40)], places=places)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, context=context, grids=[(40, 40)], places=places)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, atol=0.05, rtol=0.05)
    found.float().square().sum().backward()
    assert all(tensor.grad.isfinite().all() and tensor.grad.any() for tensor in (x, context, *layer.parameters()))


def test_values_that_heads_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match=r"width of the values.*10"):
        DeformableAttention(20, 4, ratio=0.5)
