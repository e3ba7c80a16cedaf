"""Which MODEL is an exported one, and what it says of itself."""

import json

import pytest

from vitrail.data.images.preparation import Preparation
from vitrail.deploy.export.artefact import Description, artefact_card, graph_of
from vitrail.errors import ModelFileError
from vitrail.tasks.classification.predictor import LabelDescription

ABOUT = LabelDescription(
    name="cats", labels=("cat", "dog"), multi_label=False, preparation=Preparation.standard((32, 48)), precision="fp32",
    pixels=False,
)  # fmt: skip


def test_a_folder_or_a_file_may_be_meant(tmp_path):
    for name in ("model.onnx", "model.xml"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        assert graph_of(folder) is None
        (folder / name).touch()
        assert graph_of(folder) == graph_of(folder / name) == folder / name
    assert graph_of("ViT-B/16") is None and graph_of(tmp_path / "missing.onnx") is None and graph_of("") is None


def test_a_pt2_is_refused_and_the_folder_it_lies_in_is_a_model_folder(tmp_path):
    (tmp_path / "model.pt2").touch()
    with pytest.raises(ModelFileError, match="can run code"):
        graph_of(tmp_path / "model.pt2")
    assert graph_of(tmp_path) is None


def test_what_was_written_is_read_and_has_the_fields_that_all_versions_have_written():
    assert Description.of(ABOUT.to_json(), where="here") == ABOUT
    kept = {"name", "labels", "multi_label", "thresholds", "preparation", "skeleton", "precision", "any_size", "pixels"}
    assert json.loads(ABOUT.to_json()).keys() == kept


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "{", "[" * 100_000, ABOUT.to_json().replace("fp32", "fp33")])
def test_what_is_missing_or_damaged_is_told(text):
    with pytest.raises(ModelFileError) as error:
        Description.of(text, where="here")
    assert "vitrail export" in error.value.hint


def test_the_card_says_what_goes_in_and_what_comes_out():
    card = artefact_card(ABOUT, "onnx", {})
    assert "(batch, 3, 32, 48)" in card and "(batch, 2)" in card and "model.onnx" in card
    figures = {
        "metric": "top1",
        "top1": {"before": 0.9, "after": 0.89},
        "images": 50,
        "images_per_second": {"torch fp32": 10.4, "onnxruntime int8": 41.2},
    }
    assert "89.0 %, before 90.0 %" in artefact_card(ABOUT, "onnx", figures)


def test_a_graph_beside_weights_hides_no_model(tmp_path):
    for name in ("model.onnx", "config.json", "model.safetensors"):
        (tmp_path / name).write_bytes(b"")
    assert graph_of(tmp_path) is None
