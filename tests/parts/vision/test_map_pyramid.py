"""Four feature maps of any image, from one map or from those of stages."""

import pytest
import torch
from torch import nn

from vitrail.parts import STRIDES, SimplePyramid, SpatialPrior, StageMaps, map_sizes, resize_map

SIDES = [(32, 32), (90, 70), (33, 64), (5, 1)]


@pytest.mark.parametrize("stride", [4, 8, 14, 16, 20, 32])
@pytest.mark.parametrize("side", SIDES, ids=str)
def test_the_simple_pyramid_gives_the_strides_of_any_image_from_any_patch(stride, side):
    height, width = (-(-length // stride) * stride for length in side)
    pyramid = SimplePyramid(16, stride, 5).eval()
    maps = pyramid(torch.randn(2, 16, height // stride, width // stride), map_sizes(height, width))
    assert [level.shape[2:] for level in maps] == [(-(-height // s), -(-width // s)) for s in STRIDES]
    assert all(level.shape[:2] == (2, 5) and level.isfinite().all() for level in maps)


def test_from_a_stride_of_16_two_transposed_convolutions_lead_to_4_and_pooling_to_32():
    pyramid, x = SimplePyramid(8, 16, 5).eval(), torch.randn(1, 8, 4, 6)
    kinds = [[type(m) for m in level.modules() if isinstance(m, nn.ConvTranspose2d | nn.MaxPool2d)] for level in pyramid.levels]
    assert kinds == [[nn.ConvTranspose2d] * 2, [nn.ConvTranspose2d], [], [nn.MaxPool2d]]
    *layers, one, three = pyramid.levels[3]
    torch.testing.assert_close(three(one(nn.functional.max_pool2d(x, 2))), pyramid(x, map_sizes(64, 96))[3])
    assert one.convolution.kernel_size == (1, 1) and three.convolution.kernel_size == (3, 3) and len(layers) == 1


@pytest.mark.parametrize("side", SIDES, ids=str)
def test_the_spatial_prior_has_the_same_strides(side):
    prior = SpatialPrior(3, 6).eval()
    assert [tuple(level.shape) for level in prior(torch.randn(2, 3, *side))] == [(2, 6, *size) for size in map_sizes(*side)]


def test_maps_of_three_stages_get_a_fourth_of_means():
    stages = StageMaps((2, 3, 4), 4, normed=True)
    maps = [torch.randn(1, width, side, 4) for width, side in ((2, 20), (3, 10), (4, 5))]
    levels = stages(maps)
    assert stages.widths == [2, 3, 4, 4] and [tuple(level.shape[1:]) for level in levels] == [
        (2, 20, 4), (3, 10, 4), (4, 5, 4), (4, 3, 2),
    ]  # fmt: skip
    torch.testing.assert_close(levels[1][0, :, 3, 2], nn.functional.layer_norm(maps[1][0, :, 3, 2], (3,)))
    torch.testing.assert_close(levels[3][0, :, 0, 1], levels[2][0, :, :2, 2:].mean(dim=(1, 2)))
    assert StageMaps((2,), 1, normed=False)(maps[:1])[0] is maps[0]


def test_a_map_is_enlarged_bilinearly_and_made_smaller_by_means():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert resize_map(x, (4, 4)) is x
    assert resize_map(x, (2, 2)).flatten().tolist() == [2.5, 4.5, 10.5, 12.5]
    torch.testing.assert_close(resize_map(x, (8, 8)), nn.functional.interpolate(x, scale_factor=2, mode="bilinear"))
    torch.testing.assert_close(resize_map(x, (2, 2)), nn.functional.interpolate(x, scale_factor=0.5, mode="bilinear"))
