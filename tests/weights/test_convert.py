"""Configuration, labels, thresholds and preparation survive every layout that can be written, there and back."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from test_state_dict import MODELS, STATES
from timm.data import ImageNetInfo

from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import SMALL
from vitrail.models.vision.vit import ViT
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.tasks.segmentation.weights import TrainedSegmenter
from vitrail.weights.convert import convert
from vitrail.weights.formats.safe_files import read_metadata
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.imagenet import class_ids, class_names
from vitrail.weights.model_folder.trained import FORMAT
from vitrail.weights.reference import from_pretrained
from vitrail.weights.state_dict import write

BOUNDS = (0.25, 0.5, 0.125, 0.75)

REAL_SIZES = {"timm-mixer", "timm-resnet-basic", "timm-resnet", "timm-bit", "torchvision-resnet-basic", "torchvision-resnet"}
"""Layouts that hold no small model; they are written and read like the others."""


def answering(layout: str, *, several: bool) -> TrainedModel:
    """A small model that came in a layout, with names, thresholds and a preparation of its own."""
    model = MODELS[layout]
    config: Any = model.config
    classes = 0 if getattr(config, "head", "") == "projection" else config.num_classes
    labels = ["crane", "crâne, «a;b»", '"quoted"', "0"][:classes]
    colours = {"mean": (0.1,) * config.channels}
    if config.answer == "heatmaps":
        skeleton = Skeleton.of(labels, [(0, 1)]).changed(sigmas=(0.5,) * classes).complete
        return TrainedPose(model, skeleton, BoxPreparation.of_size(config.image_size, config.channels, box_scale=1.5, **colours))
    prepared = Preparation.standard(config.image_size, config.channels, 0.5, resampling="bilinear", **colours)
    if config.answer == "noise":
        return TrainedDiffusion(model, labels, prepared)
    if config.answer == "masks":
        return TrainedSegmenter(model, labels, [(1, 2, 3), (4, 5, 6), (7, 8, 9)], prepared)
    return TrainedModel(model, labels, prepared, several, thresholds=BOUNDS[:classes] if several else ())


def told(model: TrainedModel) -> tuple:
    return model.labels, model.multi_label, list(model.thresholds), model.preparation, model.more


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.written and name not in REAL_SIZES])
def test_what_a_model_says_of_itself_survives_its_file_and_its_folder(layout, several, tmp_path):
    model, canonical = answering(layout, several=several), LAYOUTS[layout].reading.canonical
    file = tmp_path / f"alone{LAYOUTS[layout].suffix}"
    written = []
    for out in (file, tmp_path / "folder"):
        try:
            convert(model, out, layout=layout)
        except ConfigError:
            continue
        written.append(out)
        again = from_pretrained(out)
        assert told(again) == told(model) and canonical(again.config) == canonical(model.config)
        convert(again, tmp_path / f"{out.name}-ours", layout=FORMAT)
        assert told(from_pretrained(tmp_path / f"{out.name}-ours")) == told(model)
    assert written


def test_a_file_that_has_no_place_for_labels_has_another_beside_it_which_is_not_overwritten(tmp_path):
    model = answering("google", several=False)
    (tmp_path / "a.npz.json").write_text("{}")
    with pytest.raises(ConfigError, match="exists"):
        convert(model, tmp_path / "a.npz", layout="google")
    convert(model, tmp_path / "b.npz", layout="google")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz.json", "b.npz", "b.npz.json"]
    (tmp_path / "b.npz.json").write_text(json.dumps({"vitrail": {"id2label": {"0": "a"}}}))
    with pytest.raises(ModelFileError, match="labels are no names"):
        from_pretrained(tmp_path / "b.npz")
    (tmp_path / "b.npz.json").write_text(json.dumps({"somebody": "else's"}))
    assert from_pretrained(tmp_path / "b.npz").labels == ["0", "1", "2"]


def written(folder: Path, says: Mapping[str, Any]) -> Path:
    """A file of a ViT with four heads in timm's layout, which says something else of itself."""
    model = TrainedModel(ViT(MODELS["timm"].config.changed(heads=4)), ["a", "b", "c"], Preparation.standard((8, 8)))
    file, other = folder / "alone.safetensors", folder / "other.safetensors"
    convert(model, file, layout="timm")
    true = json.loads(read_metadata(file)["vitrail"])
    if isinstance(config := says.get("config", {}), dict):
        says = {**says, "config": {**true["config"], **config}}
    save_file(load_file(file), other, metadata={"vitrail": json.dumps({**true, **says})})
    return other


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ({"config": {"depth": 3}}, "depth is 2, not 3"),
        ({"config": {"depth": 1000, "dim": 2**16}}, "dim is 64, not 65536"),
        ({"config": {"num_classes": 10}}, "num_classes is 3, not 10"),
        ({"config": {"mlp": "swiglu"}}, "wrong shape"),
        ({"config": {"heads": 0}}, "heads cannot be 0"),
        ({"config": {"heads": 5}}, "dim"),
        ({"config": {"mlp": "os.system"}}, "mlp cannot be 'os.system'"),
        ({"config": {"new": 1}}, "unknown setting 'new'"),
        ({"config": 3}, "not understood"),
        ({"layout": "nobodys"}, "layout 'nobodys'"),
        ({"layout": {}}, "layout {}"),
        ({"layout": "vit"}, "unknown layout of weights"),
        ({"layout": "timm-swin"}, "damaged"),
        ({"id2label": "x" * (SMALL + 1)}, "letters"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_file_that_says_of_itself_what_cannot_be_is_refused(says, told, tmp_path):
    file = written(tmp_path, says)
    with pytest.raises(ModelFileError, match=re.escape(told)) as error:
        from_pretrained(file)
    assert str(file) in str(error.value)


def test_what_is_asked_for_stands_before_what_a_file_says_of_itself(tmp_path, capsys):
    file = written(tmp_path, {})
    assert from_pretrained(file).config.heads == 4 and "guessed" not in capsys.readouterr().err
    assert from_pretrained(file, heads=2, norm_eps=1e-3).config.heads == 2


def test_a_file_that_says_of_itself_what_it_is_does_not_hear_what_stands_beside_it(tmp_path):
    file = written(tmp_path, {})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": {"0": "x"}}))
    assert from_pretrained(file).labels == ["a", "b", "c"]


def test_what_a_file_says_of_itself_may_be_damaged(tmp_path):
    for text in ("{", "[1]", '{"id2label": 3}', '{"thresholds": [2, 0, 0]}', '{"problem_type": ["a"]}'):
        save_file(STATES["timm"], tmp_path / "a.safetensors", metadata={"vitrail": text})
        if text == "[1]":
            assert from_pretrained(tmp_path / "a.safetensors").labels == ["0", "1", "2"]
            continue
        with pytest.raises(ModelFileError):
            from_pretrained(tmp_path / "a.safetensors")


def test_a_thousand_classes_without_names_have_imagenets_and_it_is_said(tmp_path, capsys):
    model = ViT(MODELS["timm"].config.changed(num_classes=1000))
    save_file(write(model.state_dict(), model.config, LAYOUTS["timm"]), tmp_path / "a.safetensors")
    labels = from_pretrained(tmp_path / "a.safetensors").labels
    assert "labels: the names of ImageNet-1k, guessed from 1000 classes" in capsys.readouterr().err
    assert (labels[0], labels[207], labels[517], len(set(labels))) == ("tench", "golden retriever", "crane (517)", 1000)
    own = TrainedModel(model, [str(i) for i in range(1000)], Preparation.standard((8, 8)))
    convert(own, tmp_path / "own.safetensors", layout="timm")
    assert from_pretrained(tmp_path / "own.safetensors").labels == own.labels
    own.save_pretrained(tmp_path / "own")
    assert from_pretrained(tmp_path / "own").labels == own.labels


def test_the_names_of_imagenet_are_in_the_order_that_timm_has():
    info = ImageNetInfo("imagenet-1k")
    for index, name in enumerate(class_names()):
        assert name in info.index_to_description(index).split(", ")
    assert class_ids() == info.label_names()


@pytest.mark.parametrize("name", ["model.onnx", "model.xml", "model.pt2"])
def test_no_graph_is_written_nor_a_folder_that_is_called_like_one(name, tmp_path):
    with pytest.raises(ConfigError, match="is a graph, not a weights file") as error:
        convert(answering("timm", several=False), tmp_path / name)
    assert "vitrail export" in error.value.hint and not list(tmp_path.iterdir())


def test_no_pickle_is_written(tmp_path):
    with pytest.raises(ConfigError, match="a pickle can run code"):
        convert(answering("timm", several=False), tmp_path / "model.pth")
    assert not list(tmp_path.iterdir())
