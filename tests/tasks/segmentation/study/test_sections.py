"""A study of a segmenter: its numbers, maps and page, with and without masks."""

import json

import numpy as np
import pytest
from PIL import Image

import vitrail
from masked import CLASSES, drawn, picture_of, write_masks
from tiny_segmenter import tiny_segmenter
from vitrail.errors import ConfigError
from vitrail.tasks.segmentation.study.sections import crossed


def test_a_study_has_the_points_of_each_image_with_their_maps(tmp_path):
    data = write_masks(tmp_path / "data", 1, 2)
    folder, numbers = vitrail.study_model(tiny_segmenter(), data, tmp_path / "study")
    assert json.loads((folder / "study.json").read_text()) == numbers and numbers["method"] == "relevance"
    assert 0 <= numbers["scores"]["miou"] <= 1 and numbers["images"] == 2
    maps = np.load(folder / "maps.npz")
    for number, name in enumerate(maps["images"]):
        points, (left, top, right, bottom) = numbers["points"][name], maps[f"box-{number:04}"]
        assert (right - left, bottom - top) == (48, 32), "the middle, in whole patches"
        assert maps[f"maps-{number:04}"].shape == (len(points), 4, 6)
        mask = maps[f"mask-{number:04}"]
        for point in points:
            assert CLASSES[mask[point["row"] - top, point["column"] - left]] == point["class"]
            assert 0 <= point["inside"] <= 1.0001 and 0 <= point["distance"] < 58
        assert sum(point["fraction"] for point in points) <= 1.0001
    page = (folder / "report.html").read_text()
    assert "class depends on" in page and "Chefer" in page


def test_images_without_masks_are_studied_without_scores(tmp_path):
    (tmp_path / "images").mkdir()
    picture_of(drawn(3, (30, 20))).save(tmp_path / "images/a.png")
    _, numbers = vitrail.study_model(tiny_segmenter(), tmp_path / "images", tmp_path / "study")
    assert "scores" not in numbers and list(numbers["points"]) == ["a.png"]


def test_options_for_the_attention_of_one_layer_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="of all layers and heads") as caught:
        vitrail.study_model(tiny_segmenter(), tmp_path, tmp_path / "study", layer=2)
    assert caught.value.where == "--layer"


def test_a_cross_is_at_its_place():
    grey = Image.new("RGB", (101, 81), "#808080")
    changed = np.abs(np.asarray(crossed(grey, (60, 30))).astype(int) - 128).sum(axis=2) > 0
    rows, columns = np.nonzero(changed)
    assert (rows.mean(), columns.mean()) == pytest.approx((30, 60), abs=0.6)
    assert np.asarray(crossed(grey, (60, 30)))[30, 60].tolist() == [255] * 3
