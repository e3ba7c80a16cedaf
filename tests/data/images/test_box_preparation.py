"""The box that the model sees, and where joints are in it."""

import json

import numpy as np
import pytest
from PIL import Image

from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.errors import ConfigError, ModelFileError

PREPARATION = BoxPreparation.of_size((256, 192))
BOXES = [Box(30.3, 20.7, 133.1, 240.2), Box(-5, 5, 400, 40), Box(3.5, 2.25, 0.5, 0.5), Box(1000, 2000, 900, 3000)]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("angle", [0.0, 25.0, -170.0])
def test_joints_go_through_the_box_and_back(box, angle):
    joints = np.random.default_rng(0).uniform(-500, 3000, (50, 2))
    plan = PREPARATION.plan_of((3000, 3000), box)
    plan = type(plan)(plan.size, PREPARATION.warp(box, angle=angle))
    inside = plan.points(joints + 0.5)
    back = np.linalg.inv(plan.matrix)
    assert np.abs(inside @ back[:2, :2].T + back[:2, 2] - 0.5 - joints).max() <= 1e-3


@pytest.mark.parametrize("box", BOXES)
def test_the_sides_of_what_is_seen_are_between_the_centres_of_the_outermost_pixels(box):
    """1.25 times the box, made wider or higher to the model's shape, about the same centre."""
    width = max(box.width, box.height * 192 / 256) * 1.25
    centre = np.array([box.left + box.width / 2, box.top + box.height / 2])
    half = np.array([width, width * 256 / 192]) / 2
    seen = PREPARATION.plan_of((100, 100), box).points(np.stack([centre - half, centre, centre + half]) + 0.5) - 0.5
    assert np.allclose(seen, [(0, 0), (95.5, 127.5), (191, 255)])


@pytest.mark.parametrize("box_scale", [1.0, 1.25])
def test_a_picture_without_a_box_is_a_person_from_rim_to_rim(box_scale):
    preparation = PREPARATION.changed(box_scale=box_scale)
    picture = Image.effect_noise((90, 60), 50).convert("RGB")
    assert preparation.frame(picture.size) == preparation.warp(Box(0, 0, 90, 60))
    left, top, right, bottom = preparation.box(90, 60)
    assert (left + right) / 2 == 45.5 and (top + bottom) / 2 == 30.5
    assert (right - left) / (bottom - top) == pytest.approx(192 / 256 * (192 / 191) / (256 / 255))
    assert right - left == pytest.approx(90 * box_scale * 192 / 191)
    pixels, plan = preparation.planned(picture)
    assert pixels.shape == (3, 256, 192)
    assert np.allclose(plan.points(np.array([[left, top], [right, bottom]])), [(0, 0), (192, 256)])


def test_it_is_normalised_as_vitpose_was_trained_and_changes_size():
    assert PREPARATION.mean == (0.485, 0.456, 0.406) and PREPARATION.std == (0.229, 0.224, 0.225)
    assert BoxPreparation.of_size((64, 48), channels=1).mean == (0.5,)
    assert PREPARATION.at((64, 48)) == BoxPreparation.of_size((64, 48))
    assert PREPARATION.changed(box_scale=1.5).at((64, 48)).box_scale == 1.5


@pytest.mark.parametrize(("sizes", "told"), [((), None), ((0.9, 0.8), [0.9, 0.8])])
def test_smaller_sizes_are_kept_beside_the_preparation_where_there_are_any(sizes, told):
    preparation = PREPARATION.changed(smaller_sizes=sizes)
    values = json.loads(json.dumps(preparation.to_hugging_face()))
    assert values.get("smaller_sizes") == told and BoxPreparation.from_hugging_face(values) == preparation
    assert ("in 3 sizes to" in str(preparation)) is bool(sizes)
    for wrong in (1, [1], [0.1], "1", [0.5] * 9):
        with pytest.raises(ModelFileError, match="smaller_sizes"):
            BoxPreparation.from_hugging_face({**values, "smaller_sizes": wrong})


def test_a_box_is_looked_at_as_it_is_or_in_eight_turns():
    assert [*PREPARATION.turns] == [0] and PREPARATION.views == 1
    assert PREPARATION.changed(smaller_sizes=(0.9, 0.8)).views == 3
    assert BoxPreparation.of_size((32, 32), upright=True, smaller_sizes=(0.8,)).views == 16
    assert [*BoxPreparation.of_size((32, 32), upright=True).turns] == [*range(8)]


@pytest.mark.parametrize(("smoothing", "told"), [(2.0, None), (0.0, 0.0), (0.8, 0.8)])
def test_how_joints_are_read_is_kept_beside_the_preparation_where_it_is_not_the_usual_way(smoothing, told):
    preparation = PREPARATION.changed(smoothing=smoothing)
    values = preparation.to_hugging_face()
    assert values.get("smoothing") == told and BoxPreparation.from_hugging_face(values) == preparation
    with pytest.raises(ModelFileError, match="smoothing"):
        BoxPreparation.from_hugging_face({**values, "smoothing": -1})


def test_upright_people_need_a_square_input_and_the_description_says_so():
    upright = BoxPreparation.of_size((64, 64), upright=True)
    assert upright.to_hugging_face()["upright"] is True
    assert BoxPreparation.from_hugging_face(upright.to_hugging_face()) == upright
    plain = BoxPreparation.of_size((64, 64))
    assert "upright" not in plain.to_hugging_face() and BoxPreparation.from_hugging_face(plain.to_hugging_face()) == plain
    with pytest.raises(ConfigError, match="square input, not 64×48"):
        upright.at((64, 48))
