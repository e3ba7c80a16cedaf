"""Exported, quantised: from a trained model to a folder that answers like it."""

import json
from dataclasses import replace

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

import vitrail
from deploy.small import GOOD, Noting, shade_folder, shades, small_model
from vitrail import api
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.export import export_model, merging
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.classification.judging import judging
from vitrail.tasks.classification.judging.samples import Samples
from vitrail.weights.model_folder.folder import TrainedModel


def test_an_exported_model_is_taken_like_any_other(saved, exported, labelled, tmp_path):
    folder, _ = exported
    assert {path.name for path in folder.iterdir()} == {"model.xml", "model.bin", "export.json", "README.md", "SHA256SUMS"}
    scores, split = vitrail.evaluate(folder, labelled)
    assert (scores.scores()["images"], split) == (40, "all")
    images = sorted(labelled.rglob("*.png"))[:10]
    answers = vitrail.predict(folder, images, top=2)
    assert [len(labels) for labels in answers] == [2] * 10
    assert vitrail.predict(folder / "model.xml", images[0], top=2) == [answers[0]]
    whole, _ = api.export(saved, tmp_path / "fp32", to="onnx")
    for mine, theirs in zip(vitrail.predict(whole, images), vitrail.predict(saved, images), strict=True):
        assert [label for label, _ in mine] == [label for label, _ in theirs]
        assert [score for _, score in mine] == pytest.approx([score for _, score in theirs], abs=1e-4)


def test_what_was_measured_is_written_down(exported):
    folder, figures = exported
    assert json.loads((folder / "export.json").read_text()) == json.loads(json.dumps(figures))
    assert figures["verified"]["batches"] == [1, 2, 3, 7, 16]
    assert figures["token_merging"] == (4,) and figures["labelled"] and figures["images"] == 8
    assert figures["samples"] == "calibrated on 28 images (train); judged on 4 images (val); reported on 8 images (test)"
    assert figures["images_per_second"].keys() == {"torch fp32", "openvino int8", "openvino floats"}
    assert figures["points_lost"] == pytest.approx(100 * (figures["top1"]["before"] - figures["top1"]["after"]))
    assert "images per second" in (folder / "README.md").read_text().lower()


def test_torchs_graph_lies_beside_a_model_folder(saved, tmp_path):
    folder, _ = api.export(saved, tmp_path / "torch", to="torch", merge=(3,))
    assert (folder / "model.pt2").is_file()
    opened = vitrail.open_model(folder)
    assert opened.config.merged == (3, 0)
    with pytest.raises(ModelFileError, match="can run code"):
        open_predictor(folder / "model.pt2")


def test_another_image_size_may_be_exported(saved, tmp_path):
    folder, _ = api.export(saved, tmp_path / "larger", to="openvino", image_size="48x64")
    assert open_predictor(folder).preparation.image_size == (48, 64)


def test_images_without_labels_measure_agreement(saved, labelled, tmp_path):
    folder = tmp_path / "loose"
    folder.mkdir()
    for number, path in enumerate(sorted(labelled.rglob("*.png"))[:12]):
        (folder / f"{number}.png").write_bytes(path.read_bytes())
    _, figures = api.export(saved, tmp_path / "out", to="openvino", precision="int8", calibrate=folder, force=True)
    assert not figures["labelled"] and figures["top1"]["before"] == 1
    assert figures["top1"]["after"] == figures["agreement"]


@pytest.mark.usefixtures("in_python")
def test_merging_that_is_searched_stays_within_the_drop(saved, labelled, tmp_path):
    observer = Noting()
    _, figures = api.export(
        saved, tmp_path / "any", to="openvino", calibrate=labelled, merge=None, max_drop=100, observer=observer
    )
    assert max(figures["token_merging"]) == round(0.28 * 16)
    _, figures = api.export(
        saved, tmp_path / "none", to="openvino", calibrate=labelled, merge=None, max_drop=-100, observer=observer
    )
    assert not any(figures["token_merging"])
    assert observer.notes[-1] == "no merging loses less than -100 points"


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize(("lost", "kept"), [((0.4, 0.4), True), ((0.4, 0.6), False), ((0.6, 0.4), False)])
def test_merging_may_lose_neither_accuracy_nor_certainty_beyond_the_drop(lost, kept, saved, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "points_lost", lambda before, after: lost)
    monkeypatch.setattr(judging.Judge, "__call__", lambda self, predictor: GOOD)
    _, figures = api.export(saved, tmp_path / "out", to="openvino", calibrate=labelled, merge=None, max_drop=0.5)
    assert any(figures["token_merging"]) == kept


@pytest.mark.usefixtures("in_python")
def test_less_is_merged_where_the_graph_loses_more_than_the_model_in_python(saved, labelled, tmp_path, monkeypatch):
    lost = iter([3.0, 0.6, 0.4])
    monkeypatch.setattr(judging, "strongest", lambda config, allowed: merging.weaker(config, (4, 4))[0])
    monkeypatch.setattr(judging.Judge, "__call__", lambda self, predictor: replace(GOOD, points=(one := next(lost)), least=one))
    observer = Noting()
    folder, figures = api.export(
        saved, tmp_path / "out", to="openvino", calibrate=labelled, merge=None, max_drop=0.5, observer=observer
    )
    tried = merging.weaker(vitrail.open_model(saved).config, (4, 4))
    assert figures["token_merging"] == tried[2] and any(tried[2])
    assert [f"{points:.1f} ± 0.1 points" in note for points, note in zip((3.0, 0.6), observer.notes[1:], strict=True)] == [
        True,
        True,
    ]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.usefixtures("in_python")
def test_validation_images_choose_and_test_images_are_reported_on(saved, tmp_path, monkeypatch):
    data = shade_folder(tmp_path / "data", ("train", "val", "test"))
    ranges, chose, reported = [], [], []
    seen = chose
    evaluate, export_graph = Samples.evaluate, export_model.export_graph

    def noting_evaluate(self, *args):
        seen.append(shades(self))
        return evaluate(self, *args)

    def noting_export(*args):
        ranges.extend(int(image[0, 0, 0]) for image in args[-1])
        return export_graph(*args)

    def noting_judge(self, predictor):
        seen.append(shades(self.samples))
        return GOOD

    def worth(judged, limit):
        nonlocal seen
        seen = reported

    monkeypatch.setattr(Samples, "evaluate", noting_evaluate)
    monkeypatch.setattr(export_model, "export_graph", noting_export)
    monkeypatch.setattr(judging.Judge, "__call__", noting_judge)
    monkeypatch.setattr(judging, "require_accuracy", worth)
    _, figures = api.export(saved, tmp_path / "out", to="openvino", precision="int8", calibrate=data, merge=None, max_drop=100)
    train, val, test = (set(range(first, first + 40)) for first in (0, 40, 80))
    assert set(ranges) == train
    assert len(chose) > 4 and all(images == val for images in chose)  # the search, the graph, and whether int8 is worth it
    assert reported and all(images == test for images in reported)
    assert figures["images"] == 40


# what is refused, and leaves nothing


@pytest.mark.usefixtures("in_python")
def test_what_is_refused_leaves_nothing_unless_it_is_forced(saved, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(judging.Judge, "__call__", lambda self, predictor: replace(GOOD, points=3.0, least=2.0))
    with pytest.raises(ExportError, match=r"loses 3\.0 points"):
        api.export(saved, tmp_path / "out", to="openvino", precision="int8", calibrate=labelled)
    assert list(tmp_path.iterdir()) == []
    api.export(saved, tmp_path / "out", to="openvino", precision="int8", calibrate=labelled, force=True)


def test_what_is_there_already_and_what_is_exported_already_are_refused(saved, exported, tmp_path):
    with pytest.raises(ConfigError):
        api.export(saved, exported[0])
    with pytest.raises(ConfigError, match="exported already"):
        api.export(exported[0], tmp_path / "again")
    with pytest.raises(ConfigError, match="no data given"):
        api.export(saved, tmp_path / "int8", precision="int8")


def test_a_model_without_labels_is_refused_for_an_engine_before_anything_is_written(tmp_path):
    bare = small_model(num_classes=0)
    bare.labels = []
    with pytest.raises(ModelFileError, match="gives vectors, not classes"):
        api.export(bare, tmp_path / "onnx", to="onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_model_that_is_open_keeps_its_size(tmp_path):
    opened = small_model()
    with pytest.raises(ConfigError, match="its own image size only"):
        api.export(opened, tmp_path / "larger", to="torch", image_size=48)
    height, width = opened.config.image_size
    assert api.export(opened, tmp_path / "own", to="torch", image_size=f"{height}x{width}")[0].is_dir()


@pytest.mark.parametrize("merge", [2, None])
def test_merging_is_refused_of_a_model_without_tokens_before_anything_is_measured(tmp_path, merge):
    model = vitrail.create_model("ResNet-18", image_size=32, num_classes=2, width=8, depths=(1, 1)).eval()
    trained = TrainedModel(model, ["a", "b"], Preparation.standard((32, 32)))
    with pytest.raises(ConfigError, match="no tokens to merge"):
        api.export(trained, tmp_path / "merged", to="onnx", merge=merge)


def test_a_repository_for_triton_has_its_configuration_labels_and_graph(saved, tmp_path):
    folder, figures = api.export(saved, tmp_path / "repository", to="triton", fold=True)
    own = folder / "small"
    config = text_format.Parse((own / "config.pbtxt").read_text(), ModelConfig())
    assert (config.name, config.platform, config.max_batch_size) == ("small", "onnxruntime_onnx", 16)
    assert [(one.name, one.data_type, list(one.dims)) for one in config.input] == [("images", DataType.TYPE_UINT8, [3, 32, 32])]
    (output,) = config.output
    assert (output.name, output.data_type, list(output.dims)) == ("logits", DataType.TYPE_FP32, [5])
    assert (own / output.label_filename).read_text().splitlines() == [f"label {number}" for number in range(5)]
    assert figures["to"] == "triton" and description_in(own / "1" / "model.onnx").name == "small"
