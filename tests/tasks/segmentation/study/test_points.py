"""Relevance from a point: where it lies, and what it follows."""

import numpy as np
import pytest
import torch

from tiny_segmenter import FIELDS, tiny_segmenter
from vitrail.errors import ConfigError
from vitrail.tasks.segmentation.study.points import Point, _gradients_at, largest_areas, point_maps

IMAGE = torch.randn(1, 3, 40, 48, generator=torch.Generator().manual_seed(0))
POINTS = [Point(4, 4, 0, 0.5), Point(28, 36, 1, 0.5)]
"""In the middle of the patches (0, 0) and (3, 4)."""


def test_points_are_in_the_middle_of_the_largest_areas():
    mask = np.zeros((20, 30), int)
    mask[4:11, 10:17] = 2
    mask[15, 3] = 1
    ground, square = largest_areas(mask, 2)
    assert square == Point(7, 13, 2, 49 / 600)
    assert ground.label == 0 and mask[ground.row, ground.column] == 0 and ground.fraction == 550 / 600
    assert [point.label for point in largest_areas(mask, 5)] == [0, 2, 1]


@pytest.mark.parametrize("fields", [{}, {**FIELDS, "maps": "adapter"}])
def test_without_attention_the_map_is_at_the_point_alone(fields):
    model = tiny_segmenter(**fields).model
    assert model.sees_by_attention == (not fields)
    everywhere = point_maps(model, IMAGE, POINTS)
    assert everywhere.shape == (2, 5, 6) and (everywhere >= 0).all() and not torch.equal(everywhere[0], everywhere[1])
    assert ((everywhere > 0).sum(dim=(1, 2)) > 15).all()
    if not fields:
        for block in model.backbone.blocks:
            torch.nn.init.zeros_(block.attention.layer.output.weight)
        alone = point_maps(model, IMAGE, POINTS)
        for map_, (row, column) in zip(alone, ((0, 0), (3, 4)), strict=True):
            near = torch.zeros_like(map_)
            near[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = 1
            assert (map_ * (1 - near)).max() == 0 and map_.argmax() == 6 * row + column


def test_a_gradient_is_the_change_of_the_logit():
    model, image, point = tiny_segmenter().model.double(), IMAGE.double(), POINTS[1]

    def logit(x):
        return model.enlarged(model(x), 40, 48)[0, point.label, point.row, point.column]

    changes = torch.zeros(8, 8, dtype=torch.float64)
    with torch.no_grad():
        for row, column, channel in np.ndindex(8, 8, 3):
            step = torch.zeros_like(image)
            step[0, channel, 24 + row, 32 + column] = 1e-4
            changes[row, column] += (logit(image + step) - logit(image - step)).abs() / 2e-4
    (found,) = _gradients_at(model, image, [point])
    torch.testing.assert_close(found[3, 4], changes.mean(), rtol=1e-5, atol=0)


def test_a_model_in_training_is_refused():
    with pytest.raises(ConfigError, match="evaluation mode"):
        point_maps(tiny_segmenter().model.train(), IMAGE, POINTS)
