"""Predictions of images in columns, as Ray Data gives them to its workers."""

import json

import numpy as np
import pytest

import vitrail
from small_captioner import small_captioner
from tiny_pose import tiny_pose
from tiny_segmenter import tiny_segmenter
from vitrail.deploy.predictor import in_python
from vitrail.errors import ConfigError

DAMAGED = b"no image"


@pytest.fixture(scope="module")
def batch(labelled):
    """Columns of three images and a damaged one."""
    files = sorted(labelled.rglob("*.png"))[:3]
    contents = [file.read_bytes() for file in files]
    paths = [*map(str, files), "damaged.png"]
    return files, {"path": np.array(paths), "bytes": np.array([*contents, DAMAGED], dtype=object)}


def test_each_image_has_the_prediction_of_the_command_or_its_error(batch, trained):
    files, columns = batch
    found = vitrail.BatchPredictor(trained, batch_size=2)(columns)
    assert found["path"] == columns["path"].tolist() and found["error"][:3] == ["", "", ""]
    assert "image" in found["error"][3] and json.loads(found["prediction"][3]) is None
    for file, text, expected in zip(files, found["prediction"], vitrail.predict(trained, files), strict=False):
        answer = json.loads(text)
        assert answer["image"] == str(file)
        assert {one["label"]: one["score"] for one in answer["predictions"]} == pytest.approx(dict(expected), rel=1e-4)


@pytest.mark.parametrize("create", [tiny_pose, tiny_segmenter, small_captioner])
def test_models_of_other_tasks_on_images_answer_by_their_json(create, batch, monkeypatch):
    files, columns = batch
    predictor = in_python(create())
    monkeypatch.setattr("vitrail.deploy.batch_predictor.open_predictor", lambda model, precision: predictor)
    found = vitrail.BatchPredictor("model", batch_size=2)(columns)
    assert found["error"][:3] == ["", "", ""] and found["error"][3]
    for file, text in zip(files, found["prediction"], strict=False):
        (expected,) = predictor.predictions([predictor.preprocess(file.read_bytes())], 1)
        answer, whole = json.loads(text), expected.to_json(str(file))
        assert answer["image"] == str(file) and set(answer) == set(whole)


def test_vectors_are_those_of_embed(batch, trained):
    files, columns = batch
    found = vitrail.BatchPredictor(trained, vectors=True)(columns)
    assert "prediction" not in found and found["vector"][3] == [] and found["error"][3]
    np.testing.assert_allclose(np.array(found["vector"][:3]), vitrail.embed(trained, files), rtol=1e-5, atol=1e-6)


def test_a_batch_without_images_gives_empty_columns(trained):
    assert vitrail.BatchPredictor(trained)({"path": [], "bytes": []}) == {"path": [], "error": [], "prediction": []}


def test_a_wrong_size_of_a_batch_is_refused(trained):
    with pytest.raises(ConfigError, match="batch_size"):
        vitrail.BatchPredictor(trained, batch_size=0)
