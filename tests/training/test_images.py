"""What a run does with its images before the first step: it reads the labels that its task needs, and fits a first layer."""

import pytest
import torch

from vitrail import api
from vitrail.config.settings import RunSettings
from vitrail.data.readers.sources import open_data
from vitrail.errors import DataError
from vitrail.parts import Whitening
from vitrail.task_registry import TaskRow
from vitrail.training.images import ImageRunData, open_images
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.reference import open_model

RESNET = {
    "model": "ResNet-18", "image_size": 8, "recipe": "scratch", "model.depths": (1,), "model.width": 8, "model.root": "whitened",
    "model.block": "pooled", "epochs": 2, "batch_size": 12, "data.workers": 0, "optimizer.name": "muon",
}  # fmt: skip


def first_layer(folder) -> Whitening:
    return next(layer for layer in open_model(str(folder)).model.modules() if isinstance(layer, Whitening))


def test_a_whitened_root_is_fitted_to_the_training_images_and_stays(pictures, tmp_path):
    run = api.train(pictures, tmp_path / "run", **RESNET)
    found, preparation = first_layer(run.folder), open_model(str(run.folder)).preparation
    expected = Whitening(3)
    source = open_data(pictures, split_seed=RunFolder(run.folder).settings.data.split_seed)
    expected.fit([preparation(item.image) for item in source.split("train")])
    assert torch.equal(found.weight, expected.weight)

    again = api.train(pictures, tmp_path / "again", start=str(run.folder), **{**RESNET, "training.probe": False})
    assert torch.equal(first_layer(again.folder).weight, expected.weight)


def test_a_model_to_start_from_keeps_what_it_was_fitted_to(pictures, tmp_path):
    known = api.train(pictures, tmp_path / "known", **RESNET)
    others = tmp_path / "others"
    for name in ("red", "green"):
        (others / name).mkdir(parents=True)
        for file in (pictures / name).iterdir():
            (others / name / file.name).write_bytes(file.read_bytes())
    run = api.train(others, tmp_path / "run", start=str(known.folder), **{**RESNET, "training.probe": False})
    assert torch.equal(first_layer(run.folder).weight, first_layer(known.folder).weight)


def test_a_table_whose_labels_name_no_class_is_refused(pictures, tmp_path):
    (tmp_path / "labels.csv").write_text("image,label\n" + "".join(f"{file},;\n" for file in (pictures / "red").iterdir()))
    with pytest.raises(DataError, match="no class found"):
        api.train(tmp_path / "labels.csv", tmp_path / "run", recipe="scratch", epochs=1)
    assert not (tmp_path / "run").exists()


# labels as a task needs them


def opened(pictures, tmp_path, labels, kind):
    """The data of a run of a throw-away task: in folders of classes, in a table, or without any labels."""
    place = tmp_path / kind
    place.mkdir()
    for file in pictures.rglob("*.png"):
        name = f"{file.parent.name}/{file.name}" if kind == "classes" else f"{file.parent.name}-{file.name}"
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(file.read_bytes())
    if kind == "table":
        lines = [f"{file.name},{file.name.split('-')[0]}" for file in sorted(place.glob("*.png"))]
        (place / "labels.csv").write_text("\n".join(["image,label", *lines]) + "\n")
    kinds = ImageRunData(TaskRow("classification", "classification", labels))
    settings = RunSettings.read({"model": {"name": "ViT-Ti/4", "image_size": 16}, "data": {"source": str(place)}})
    source = kinds.open_source(settings)
    return source, kinds.complete(settings, source, None)


@pytest.mark.parametrize(
    ("labels", "kind", "classes"),
    [
        ("required", "classes", 3),
        ("required", "table", 3),
        ("required", "bare", None),
        ("optional", "classes", 3),
        ("optional", "table", 3),
        ("optional", "bare", 0),
        ("none", "classes", 0),
        ("none", "bare", 0),
    ],
)
def test_images_have_the_labels_that_the_row_of_the_task_needs(pictures, tmp_path, labels, kind, classes):
    if classes is None:
        with pytest.raises(DataError):
            opened(pictures, tmp_path, labels, kind)
        return
    source, settings = opened(pictures, tmp_path, labels, kind)
    assert len(source.classes) == settings.model.num_classes == classes and len(source.split("all")) == 24


def test_a_table_that_is_wrong_is_not_taken_for_images_without_labels(pictures, tmp_path):
    for file in (pictures / "red").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "labels.csv").write_text("image,label\nnowhere.png,red\n")
    with pytest.raises(DataError, match=r"nowhere\.png"):
        open_images("optional", tmp_path)


def test_data_without_an_image_to_learn_from_is_refused(pictures):
    source = open_images("none", pictures)
    with pytest.raises(DataError, match="no images in the split 'train'"):
        ImageRunData(TaskRow("mae", "mae", "none")).require_learnable(source.without({i.name for i in source.splits["train"]}))
