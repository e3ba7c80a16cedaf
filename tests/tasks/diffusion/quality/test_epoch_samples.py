"""Samples at the ends of epochs: what they cost a run, and how they choose the epoch that is kept."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from tiny_diffusion import TINY, model
from vitrail import api
from vitrail.data.items import Item
from vitrail.runtime.observer import Observer
from vitrail.tasks.diffusion.quality.epoch_samples import COMPARED, SHOWN, EpochSamples
from vitrail.weights.formats.tensor_files import read_tensors

MORE = {**TINY, "training.epochs": 3, "training.ema": 0.5}


@pytest.fixture
def train(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "write_report", lambda finished: None)
    return lambda name, **settings: api.train(pictures, tmp_path / name, task="diffusion", **{**MORE, **settings})


def rows_of(run):
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def test_samples_are_always_of_the_same_seeds_and_the_distance_of_real_images_is_least():
    trained = model(objective="flow")
    before = trained.model.training
    one, other = EpochSamples(trained, compared=False), EpochSamples(trained, compared=False)
    assert one.picture() == other.picture() and len(one.samples) == SHOWN and trained.model.training is before
    random = np.random.default_rng(0)
    own = EpochSamples(trained, compared=True)
    alike = [Item("", picture, 0) for picture in own.samples]
    others = [Item("", Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)), 0) for _ in range(64)]
    assert len(own.samples) == COMPARED
    distances = []
    for items in (alike, others):
        metrics = EpochSamples(trained, compared=True)
        metrics.take_items(items)
        distances.append(metrics.scores()["sample_distance"])
    assert distances[0] < 0 < distances[1]  # unbiased, so that the same images twice are below zero


def test_samples_of_an_epoch_need_no_copy_of_the_model_since_a_sharded_one_has_none(monkeypatch):
    trained = model(objective="flow")

    def refuse(self, memo):
        raise AssertionError("FSDP does not support deepcopy")

    monkeypatch.setattr(type(trained.model), "__deepcopy__", refuse, raising=False)
    assert EpochSamples(trained, compared=False).picture().startswith(b"\x89PNG")


def test_the_epoch_of_the_least_distance_is_kept_and_the_training_is_the_same(train):
    by_loss, by_kernel = train("loss"), train("kernel", **{"task.best": "kernel"})
    rows = rows_of(by_kernel)
    distances = [row["val_sample_distance"] for row in rows]
    status = json.loads((by_kernel.folder / "status.json").read_text())
    assert status["best"]["epoch"] == 1 + distances.index(min(distances))
    assert not any("val_sample_distance" in row for row in rows_of(by_loss))
    assert [row["val_loss"] for row in rows] == [row["val_loss"] for row in rows_of(by_loss)]
    ours, theirs = (read_tensors(run.folder / "last" / "model.safetensors") for run in (by_kernel, by_loss))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_an_interrupted_run_has_the_same_distances_and_pictures(train, tmp_path):
    class Stopping(Observer):
        def step(self, epoch, sums):
            if epoch == 2:
                raise KeyboardInterrupt

    settings = {"task.best": "kernel", "training.checkpoint_every_steps": 1}
    whole = train("whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        train("broken", observer=Stopping(), **settings)
    resumed = api.resume(tmp_path / "broken")
    assert [row["val_sample_distance"] for row in rows_of(resumed)] == [row["val_sample_distance"] for row in rows_of(whole)]
    names = sorted(file.name for file in (whole.folder / "plots").glob("epoch-*.png"))
    assert names == [f"epoch-00000{number}.png" for number in (1, 2, 3)]
    assert all((whole.folder / "plots" / name).read_bytes() == (resumed.folder / "plots" / name).read_bytes() for name in names)
