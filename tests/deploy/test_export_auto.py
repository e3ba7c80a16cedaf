"""The quickest graph that holds the accuracy."""

import json
import re
from dataclasses import replace

import pytest

from deploy.small import GOOD, Noting
from tiny_pose import tiny_pose
from vitrail import api
from vitrail.deploy.export import export_model
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError
from vitrail.tasks.classification.judging import judging


@pytest.fixture
def processor(monkeypatch):
    """A processor with bf16, whatever the machine has."""
    monkeypatch.setattr(export_model, "quickest_precision", lambda device: "bf16")


def losing(points: float):
    """What a graph is judged to lose, whatever it is."""
    return lambda self, predictor: replace(GOOD, points=points, least=points)


def rates(int8: float):
    return lambda *args: {"images_per_second": {"openvino floats": 100.0, "openvino int8": int8}, "beside": "openvino floats"}


@pytest.mark.usefixtures("processor", "in_python")
@pytest.mark.parametrize(
    ("lost", "int8", "taken", "because"),
    [
        (0.0, 120.0, "int8", "faster"),
        (3.0, 120.0, "bf16", r"loses 3\.0 points"),
        (0.0, 90.0, "bf16", "slower than openvino floats: 90 images per second, not 100"),
    ],
)
def test_int8_is_kept_where_it_is_faster_and_holds_the_accuracy(
    lost, int8, taken, because, saved, labelled, tmp_path, monkeypatch
):
    monkeypatch.setattr(judging.Judge, "__call__", losing(lost))
    monkeypatch.setattr(judging, "speeds_of", rates(int8))
    told = Noting()
    folder, figures = api.export(saved, tmp_path / "out", to="openvino", precision="auto", calibrate=labelled, observer=told)
    assert figures["precision"] == taken and re.search(because, figures["because"])
    assert json.loads((folder / "export.json").read_text())["because"] == figures["because"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (f"bf16 is used: {figures['because']}" in told.notes) == (taken == "bf16")


@pytest.mark.usefixtures("processor", "in_python")
def test_what_is_kept_by_force_is_not_called_worth_it(saved, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(judging.Judge, "__call__", losing(3.0))
    monkeypatch.setattr(judging, "speeds_of", rates(90.0))
    _, figures = api.export(saved, tmp_path / "out", to="openvino", precision="auto", calibrate=labelled, force=True)
    assert (figures["precision"], figures["because"]) == ("int8", "--force keeps it")


@pytest.mark.usefixtures("processor", "in_python")
@pytest.mark.parametrize(("to", "floats"), [("openvino", "bf16"), ("onnx", "fp32"), ("torch", "bf16")])
def test_floats_are_the_quickest_that_the_target_computes_in(to, floats, saved, labelled, tmp_path, monkeypatch):
    assert export_model.quickest_floats(to) == floats
    monkeypatch.setattr(judging.Judge, "__call__", losing(3.0))
    _, figures = api.export(saved, tmp_path / "out", to=to, precision="auto", calibrate=labelled)
    assert figures["precision"] == floats


@pytest.mark.usefixtures("in_python")
def test_what_is_wrong_apart_from_int8_is_told(saved, tmp_path):
    with pytest.raises(ConfigError, match="no data given"):
        api.export(saved, tmp_path / "out", to="openvino", precision="auto")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("processor", "in_python")
@pytest.mark.parametrize("merge", [0, None])
def test_the_model_is_opened_and_samples_are_read_once_whatever_is_refused(merge, saved, labelled, tmp_path, monkeypatch):
    calls = []

    def counted(module, name):
        real = getattr(module, name)

        def call(*args, **options):
            calls.append(name)
            return real(*args, **options)

        monkeypatch.setattr(module, name, call)

    counted(export_model, "from_pretrained")
    for name in ("samples_of", "MergingLimit"):
        counted(judging, name)
    monkeypatch.setattr(judging.Judge, "__call__", losing(0.0))
    monkeypatch.setattr(judging, "speeds_of", rates(90.0))
    _, figures = api.export(
        saved, tmp_path / "out", to="openvino", precision="auto", calibrate=labelled, merge=merge, max_drop=100
    )
    assert figures["precision"] == "bf16" and "slower" in figures["because"]
    assert sorted(calls) == sorted(["from_pretrained", "samples_of", *["MergingLimit"] * (merge is None)])


@pytest.mark.usefixtures("in_python")
def test_floats_that_fail_after_int8_was_refused_are_an_error(saved, labelled, tmp_path, monkeypatch):
    def broken(*args):
        raise ExportError("the graph cannot be made", where="export")

    monkeypatch.setattr(export_model, "export_graph", broken)
    with pytest.raises(ExportError, match="cannot be made"):
        api.export(saved, tmp_path / "out", to="openvino", precision="auto", calibrate=labelled)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("processor")
def test_a_model_that_finds_joints_takes_floats(tmp_path):
    _, figures = api.export(tiny_pose(), tmp_path / "out", to="openvino", precision="auto")
    assert figures["precision"] == "bf16" and "joints" in figures["because"]


@pytest.mark.usefixtures("in_python")
def test_int8_that_was_asked_for_is_kept_where_it_is_slower_here(saved, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(judging.Judge, "__call__", losing(0.0))
    monkeypatch.setattr(judging, "speeds_of", rates(90.0))
    told = Noting()
    _, figures = api.export(saved, tmp_path / "out", to="openvino", precision="int8", calibrate=labelled, observer=told)
    assert figures["judged"]["least"] == 0 and "int8 is slower than openvino floats: 90 images per second, not 100" in told.notes
