"""The task: losses of crops, predictions of images at their own size, and its settings."""

import numpy as np
import pytest
import torch

import vitrail
from masked import COLORS, write_masks
from tiny_segmenter import FIELDS, TINY_SEGMENTER, tiny_segmenter
from vitrail.config.configuration import nested
from vitrail.config.request import Request
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.segmentation import data as run_data
from vitrail.tasks.segmentation import windows
from vitrail.tasks.segmentation.data import balanced_weights
from vitrail.tasks.segmentation.files.sources import open_masks
from vitrail.tasks.segmentation.judging.metrics import confusion_matrix, iou
from vitrail.tasks.segmentation.learning.losses import mask_loss
from vitrail.tasks.segmentation.settings import SegmentationSettings
from vitrail.tasks.segmentation.task import Segmentation
from vitrail.training.run_data import run_data_of
from vitrail.training.runs import setup


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return open_masks(write_masks(tmp_path_factory.mktemp("masks"), 4, 3))


def task_of(source, settings=None, **fields):
    trained = tiny_segmenter(**fields)
    return Segmentation(trained.model, trained.preparation, source.coding, settings or SegmentationSettings())


def test_the_auxiliary_heads_loss_is_added_with_its_weight(source):
    task = task_of(source, SegmentationSettings(auxiliary=0.25, dice=1.0), **FIELDS, maps="adapter", head="mlp", auxiliary=True)
    batch = next(EpochLoader(task.dataset(source.split("train"), seed=1), 2, shuffle=False).epoch())
    batch = {name: tensor[:, ..., :32, :32] if tensor.ndim > 2 else tensor for name, tensor in batch.items()}
    task.eval()
    loss = task(batch)["loss"]
    logits, second = task.model(task.preparation.normalize(batch["images"]), separate=True)
    expected = mask_loss(logits, batch["masks"], task.settings) + 0.25 * mask_loss(second, batch["masks"], task.settings)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert task.model.auxiliary_classifier.weight.grad.any()


def test_images_are_predicted_at_their_own_size_alike_by_windows_of_their_size(source):
    task = task_of(source)
    batch = next(EpochLoader(task.dataset(source.split("val")), 6, shuffle=False).epoch())  # as many as six crops fill
    with answering(task, torch.device("cpu")) as answer:
        whole = answer(batch)
    assert whole["masks"].shape == batch["masks"].shape == (3, 36, 48)
    assert whole["pixels"].tolist() == (batch["masks"] < 3).sum(dim=(1, 2)).tolist() and (whole["pixels"] < 36 * 48).all()
    padded = task_of(source, SegmentationSettings(window=(40, 48)))
    with answering(padded, torch.device("cpu")) as answer:
        windowed = answer(batch)
    assert torch.equal(whole["masks"], windowed["masks"]) and torch.equal(whole["loss"], windowed["loss"])


def test_metrics_of_the_task_are_those_of_its_masks(source):
    task, items = task_of(source), source.split("val")
    metrics = task.metrics(keep=True)
    with answering(task, torch.device("cpu")) as answer:
        evaluate(answer, EpochLoader(task.dataset(items), 2, shuffle=False), metrics)
    counts = sum(confusion_matrix(source.mask_of(item), task.mask(item), 3) for item in items)
    assert (metrics.confusion == counts).all()
    floor = task.floor(metrics, items, [])
    true = counts.sum(axis=1)
    assert floor.name == "ground everywhere" and floor.scores["miou"] == true[0] / true.sum() / 3
    assert np.nanmean(iou(counts)) == metrics.scores()["miou"]


def test_the_trained_model_has_the_classes_and_colours_of_the_data(source):
    task = task_of(source)
    trained = task.trained(task.model)
    assert trained.labels == source.classes and trained.colors == COLORS == source.colors


# settings that follow from the data


def completed(source, **settings):
    requested = {"data": source.source, **TINY_SEGMENTER, **settings}
    resolved, start = setup.resolve_run(None, None, nested(requested))
    inputs = run_data_of(resolved)
    opened = inputs.open_source(resolved)
    return inputs.complete(resolved, opened, start), opened


def test_balanced_weights_are_the_root_of_the_median_frequency_over_each_classs_own(source):
    settings, opened = completed(source, **{"task.class_weights": "balanced"})
    masks = [source.mask_of(item) for item in source.split("train")]
    frequencies = []
    for number in range(3):
        showing = [mask for mask in masks if (mask == number).any()]
        frequencies.append(sum((mask == number).sum() for mask in showing) / sum((mask < 3).sum() for mask in showing))
    expected = np.sqrt(np.median(frequencies) / frequencies)
    assert settings.task.class_weights == pytest.approx(expected, abs=1e-4) == balanced_weights(opened)


def test_weights_of_the_command_line_are_numbers_one_for_each_class(source):
    assert completed(source, **{"task.class_weights": "1,2,0.5"})[0].task.class_weights == (1, 2, 0.5)
    with pytest.raises(ConfigError, match="2 weights for 3 classes"):
        completed(source, **{"task.class_weights": [1, 2]})
    with pytest.raises(ConfigError, match="class_weights cannot be"):
        completed(source, **{"task.class_weights": "equal"})


def test_images_that_are_too_large_as_a_whole_get_windows(source, monkeypatch):
    assert completed(source)[0].task.window is None
    monkeypatch.setattr(run_data, "MOST_WHOLE", 36 * 48 - 1)
    settings, opened = completed(source)
    assert settings.task.window == (32, 32)
    assert any("3 images are too large" in line for line in run_data_of(settings).warnings(settings, opened))
    assert windows.MOST_WHOLE == 2**22


def test_a_segmenter_is_made_of_the_model_to_start_from_as_flags_say(tmp_path):
    vit = vitrail.create_model("ViT-Ti/16", image_size=32, dim=16, depth=4, heads=2, mlp_dim=16, num_classes=5).config
    request = Request.read(None, None, nested({"data": "masks", "task": "segment", "start": "vit.safetensors"}))
    assert request.settings(vit).model.maps == "adapter" and request.settings(vit).model.backbone.dim == 16
    flags = {"data": "masks", "task": "segment", "start": "vit", "model.maps": "last", "model.head": "linear", "image_size": 64}
    model = Request.read(None, None, nested(flags)).settings(vit).model
    assert (model.maps, model.head, model.image_size, model.auxiliary) == ("last", "linear", (64, 64), False)
    assert model.backbone.num_classes == 0
    with pytest.raises(ConfigError, match="cannot be the backbone of a segmenter"):
        request.settings(vitrail.create_model("Mixer-S/16").config)
