"""Skeletons over pictures: where, in which colours, how plainly."""

import numpy as np
import pytest
from PIL import Image, ImageColor

from vitrail.data.images.box_preparation import Box
from vitrail.study.page import figures
from vitrail.tasks.pose.metrics import Found
from vitrail.tasks.pose.people.people import Person, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.study.skeletons import LEFT, MIDDLE, RIGHT, draw_people, ringed, worst_sheet

BODY = Skeleton.of(["left_hip", "left_knee", "right_hip", "right_knee", "neck"], [(0, 1), (2, 3), (0, 2), (4, 0), (4, 2)])
PLACES = np.array([[(30, 50), (30, 90), (70, 50), (70, 90), (50, 10)]], float)
GREY = Image.new("RGB", (100, 100), "#808080")


def colours(picture: Image.Image, *places) -> np.ndarray:
    return np.array([picture.getpixel(place) for place in places])


def rgb(*names: str) -> np.ndarray:
    return np.array([ImageColor.getrgb(name) for name in names])


def test_limbs_have_the_colour_of_their_side_and_what_joins_the_sides_another():
    drawn = draw_people(GREY, PLACES, BODY)
    at = (30, 70), (70, 70), (50, 50), (40, 30), (60, 30)
    assert np.allclose(colours(drawn, *at), rgb(LEFT, RIGHT, MIDDLE, LEFT, RIGHT), atol=4)
    assert np.allclose(colours(drawn, (30, 90), (70, 90), (50, 10)), rgb(LEFT, RIGHT, MIDDLE), atol=4)
    assert colours(drawn, (50, 75), (5, 5)).tolist() == [[128] * 3] * 2


def test_boxes_are_drawn_with_their_numbers():
    boxes = [Box(85, 85, 10, 10), Box(30, 20, 40, 50)]
    one, two = (np.asarray(draw_people(GREY, PLACES[:0], BODY, boxes=some)).astype(int) for some in (boxes[1:], boxes))
    changed = np.abs(one - 128).sum(axis=2) > 30
    assert changed[22:69, 30].all() and changed[70, 32:68].all() and not changed[45:65, 45:65].any()
    assert (one[21:40, 31:50] != two[21:40, 31:50]).any() and (one[45:75] == two[45:75]).all()  # 1 and 2


def test_a_joint_is_drawn_where_it_is_to_the_centre_of_its_pixel():
    single = Skeleton.of(["thumb"])
    for size in (21, 901, 2401):  # drawn four times as large, twice, and as it is, where half a pixel is lost
        middle = (size - 1) / 2
        drawn = np.asarray(draw_people(Image.new("L", (size, size)), np.array([[[middle, middle]]]), single).convert("L"), float)
        rows, columns = np.indices(drawn.shape)
        assert (rows * drawn).sum() / drawn.sum() == pytest.approx(middle, abs=0.55)
        assert (columns * drawn).sum() / drawn.sum() == pytest.approx(middle, abs=0.55)


def test_joints_that_are_not_sure_are_fainter_with_their_limbs():
    scores = np.array([[0.9, 0.1, 0.9, 0.9, 0.9]])
    sure, unsure = draw_people(GREY, PLACES, BODY), draw_people(GREY, PLACES, BODY, scores)
    for place in ((30, 70), (30, 90)):
        distance = [np.abs(colours(picture, place)[0] - 128).sum() for picture in (sure, unsure)]
        assert 0.2 < distance[1] / distance[0] < 0.6
    assert np.array_equal(colours(sure, (70, 70), (30, 50)), colours(unsure, (70, 70), (30, 50)))


def people(count: int) -> list[Person]:
    joints = tuple((float(x), float(y), 2 if i else 0) for i, (x, y) in enumerate(PLACES[0]))
    random = np.random.default_rng(0)
    pictures = [random.integers(90, 160, (100, 100, 3), dtype=np.uint8) for _ in range(count)]
    return [Person(f"{i}.png#1", picture, Pose(Box(20, 5, 60, 90), joints, 900.0, i, 1)) for i, picture in enumerate(pictures)]


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (2, 2), (5, 4)])
def test_a_sheet_shows_the_worst_first_with_what_was_found_and_what_is_marked(count, shown, tmp_path):
    some = people(count)
    found = Found(np.repeat(PLACES + 3, count, axis=0), np.ones((count, 5)))
    quality = np.array([0.9, 0.1, 0.5, np.nan, 0.7][:count])
    figure = worst_sheet(some, found, BODY, quality, [f"said of {i}" for i in range(count)], count=4)
    drawn = [axes for axes in figure.axes if axes.images]
    order = [number for number in np.argsort(quality).tolist() if np.isfinite(quality[number])]
    assert [axes.get_xlabel() for axes in drawn] == [words for i in order for words in (f"{i}.png#1", f"said of {i}")]
    assert len(drawn) == 2 * shown and [axes.get_title() for axes in drawn[:2]] == ["found", "marked"]
    figures.save(figure, tmp_path / "sheet.png")
    assert min(Image.open(tmp_path / "sheet.png").size) > 150


def test_a_sheet_shows_the_part_of_the_picture_with_the_person_and_no_joint_that_is_not_marked():
    (person,) = people(1)
    found = Found(PLACES, np.ones((1, 5)))
    left, right = (
        np.asarray(axes.images[0].get_array()) for axes in worst_sheet([person], found, BODY, np.zeros(1), [""]).axes[:2]
    )
    scale = left.shape[0] / 100  # all of its height, and 72 of the width from 8.75 on
    row, column = round(70.5 * scale), round((30.5 - 8.625) * scale)
    assert np.allclose(left[row, column], rgb(LEFT)[0], atol=6) and not np.allclose(right[row, column], rgb(LEFT)[0], atol=60)


@pytest.mark.parametrize("ground", ["black", "white", "#808080"])
def test_a_ring_is_around_a_place_and_leaves_it_free(ground):
    picture = Image.new("RGB", (200, 100), ground)
    ring = np.abs(np.asarray(ringed(picture, np.array([120.0, 40.0]))).astype(int) - np.asarray(picture)).sum(axis=2)
    rows, columns = np.nonzero(ring > 60)
    assert (rows.mean(), columns.mean()) == pytest.approx((40, 120), abs=0.6)
    assert ring[36:45, 116:125].max() == 0 and picture.getpixel((120, 31)) == picture.getpixel((0, 0))
