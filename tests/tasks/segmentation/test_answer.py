"""Predicted masks as areas, files and pictures."""

import io

import numpy as np
from PIL import Image

from vitrail.tasks.segmentation.answer import SegmentationAnswer, laid_over

COLORS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
MASK = np.array([[0, 0, 2], [2, 2, 2]], np.uint8)
ANSWER = SegmentationAnswer(MASK, ["sky", "road", "car"], COLORS)


def test_areas_are_of_the_predicted_classes_the_largest_first():
    assert [tuple(area) for area in ANSWER.areas] == [("car", 4, 4 / 6), ("sky", 2, 2 / 6)]
    assert ANSWER.rows() == [["car", "4", "0.666667"], ["sky", "2", "0.333333"]]
    assert ANSWER.entries("a.png")[0] == {"image": "a.png", "class": "car", "pixels": 4, "fraction": 4 / 6}
    assert ANSWER.to_json("a.png") == {"image": "a.png", "width": 3, "height": 2, "areas": ANSWER.entries("a.png")}
    assert ANSWER.lines() == ["car 66.7 %, sky 33.3 %"]


def test_the_mask_is_an_indexed_png_with_the_colours_of_the_classes():
    file = io.BytesIO()
    ANSWER.indexed().save(file, "PNG")
    opened = Image.open(file)
    assert opened.mode == "P" and (np.asarray(opened) == MASK).all()
    assert (np.asarray(opened.convert("RGB")) == np.array(COLORS, np.uint8)[MASK]).all()


def test_a_mask_of_many_classes_keeps_its_indices():
    mask = MASK.astype(np.uint16) + 300
    file = io.BytesIO()
    SegmentationAnswer(mask, [str(number) for number in range(400)], [(0, 0, 0)] * 400).indexed().save(file, "PNG")
    assert (np.asarray(Image.open(file)) == mask).all()


def test_classes_are_laid_over_the_picture_and_void_is_not():
    picture = Image.new("RGB", (3, 2), (100, 100, 100))
    drawn = np.asarray(laid_over(picture, np.where(MASK == 0, 255, MASK), COLORS, 0.5)).astype(int)
    assert (drawn[MASK == 0] == 100).all()
    assert (abs(drawn[MASK == 2] - (50, 50, 177)) <= 1).all()
    assert ANSWER.draw(picture).size == picture.size
