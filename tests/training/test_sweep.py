"""Every combination of some settings, resumable."""

import csv
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from vitrail import api, sweep
from vitrail.cli.training.sweep import _axis
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError
from vitrail.study.compare import sweeps
from vitrail.training.sweep import _axes, _begin

pytestmark = pytest.mark.usefixtures("unreported")

OVER = {"model.position": ["none", "relative"], "seed": [0, 1]}


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Sweeps without a picture and a page, which other tests look at."""
    monkeypatch.setattr(sweeps, "write_sweep", lambda *found, **words: None)


@pytest.fixture(scope="module")
def swept(pictures, tiny, tmp_path_factory):
    """The folder of a finished sweep and what it found."""
    out = tmp_path_factory.mktemp("sweeps") / "positions"
    return out, sweep(pictures, out, over=OVER, **tiny)


def test_every_combination_is_trained_in_a_folder_of_its_name(swept):
    out, found = swept
    names = {f"position={position},seed={seed}" for position in ("none", "relative") for seed in (0, 1)}
    assert {folder.name for folder in out.iterdir() if folder.is_dir()} == names
    assert [values for values, _ in found] == [
        {"model.position": position, "training.seed": seed} for position in ("none", "relative") for seed in (0, 1)
    ]
    for values, run in found:
        assert run.settings["model"]["position"] == values["model.position"]
        assert run.settings["training"]["seed"] == values["training.seed"]
        assert run.state == "finished" and run.score is not None


def test_one_table_and_one_picture_come_of_it(swept):
    out, _ = swept
    assert {"report.html", "sweep.png", "curves.png", "results.csv", "results.json", "sweep.json"} <= {
        f.name for f in out.iterdir()
    }
    head, *rows = csv.reader((out / "results.csv").open())
    assert [row[head.index("model.position")] for row in rows] == ["none", "relative"]
    assert len(json.loads((out / "results.json").read_text())) == 4


def test_the_same_sweep_again_trains_nothing(swept, pictures, tiny, monkeypatch):
    out, found = swept
    monkeypatch.setattr(api, "train", None)
    assert [run.scores for _, run in sweep(pictures, out, over=OVER, **tiny)] == [run.scores for _, run in found]


def test_other_settings_in_the_same_folder_are_refused(swept, pictures, tiny):
    with pytest.raises(ConfigError, match="sweep of other settings"):
        sweep(pictures, swept[0], over={"seed": [0, 1]}, **tiny)


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_sweep_goes_on_where_it_was(swept, pictures, tiny, tmp_path):
    class Impatient(Observer):
        runs = 0

        def start(self, epochs, steps, done):
            self.runs += 1

        def step(self, epoch, sums):
            if self.runs == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError, match="same command again") as stop:
        sweep(pictures, tmp_path / "out", over=OVER, observer=Impatient(), **tiny)
    assert stop.value.exit_code == 130
    first = (tmp_path / "out" / "position=none,seed=0" / "status.json").read_text()
    found = sweep(pictures, tmp_path / "out", over=OVER, **tiny)
    assert (tmp_path / "out" / "position=none,seed=0" / "status.json").read_text() == first
    assert [run.scores for _, run in found] == [run.scores for _, run in swept[1]]


def test_a_run_that_diverges_stays_in_the_table_without_a_score(pictures, tiny, tmp_path, monkeypatch):
    settings = {**tiny, "optimizer.clip_norm": 0}
    found = sweep(pictures, tmp_path / "out", over={"lr": [1e-3, 1e30]}, **settings)
    assert [run.state for _, run in found] == ["finished", "diverged"]
    assert "diverged" in (tmp_path / "out" / "report.html").read_text()
    monkeypatch.setattr(api, "train", None)  # it is not tried again
    again = sweep(pictures, tmp_path / "out", over={"lr": [1e-3, 1e30]}, **settings)
    assert [run.state for _, run in again] == ["finished", "diverged"]


KINDS = {"model": ["ViT-Ti/4", "R+ViT-CIFAR10", "ResNet-18", "Mixer-S/4"]}
SMALL = {
    "image_size": 8, "epochs": 1, "batch_size": 8, "augmentation.crop": "none", "model.depth": 1, "model.mlp_dim": 32,
    "model.width": 4, "model.channel_dim": 16, "model.resnet_width": 8,
}  # fmt: skip


def test_models_of_several_architectures_each_take_the_settings_that_they_have(pictures, tmp_path):
    class Listening(Observer):
        notes = ()

        def note(self, text):
            self.notes += (text,)

    observer = Listening()
    found = sweep(pictures, tmp_path / "out", over=KINDS, against="operations", observer=observer, **SMALL)
    assert [run.family for _, run in found] == ["ViT", "hybrid", "ResNet", "Mixer"]
    models = [run.settings["model"] for _, run in found]
    assert [model.get("depth") for model in models] == [1, 1, None, 1]
    assert [model.get("width") for model in models] == [None, None, 4, None]
    assert [model.get("pool") for model in models] == ["class", "mean", None, None]  # not what the recipe says of another
    assert [
        note for note in observer.notes if "ResNet-18 does not" in note and "channel_dim, depth, mlp_dim, resnet_width" in note
    ]
    assert {"sweep.png", "report.html"} <= {file.name for file in (tmp_path / "out").iterdir()}
    head, *rows = csv.reader((tmp_path / "out" / "results.csv").open())
    assert len({row[head.index("operations")] for row in rows}) == 4


def test_a_setting_that_no_model_of_the_sweep_has_is_refused(pictures, tmp_path):
    with pytest.raises(ConfigError, match="token_dim"):
        sweep(pictures, tmp_path / "out", over={"model": ["ViT-Ti/4", "ResNet-18"]}, image_size=8, **{"model.token_dim": 8})
    with pytest.raises(ConfigError, match="unknown model"):
        sweep(pictures, tmp_path / "out", over={"model": ["ViT-Ti/4", "ResNet-19"]}, image_size=8)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({}, "nothing to vary"),
        ({"model.depth": []}, "values of model.depth"),
        ({"task": ["classification", "mae"]}, "scores of different tasks"),
        ({"model": "ViT-Ti/4"}, "give a list of values"),
        ({"model.depth": 1}, "give a list of values"),
        ({"model.depth": np.array([1, 1])}, "values of model.depth"),
        ({"model.depth": [1, 1]}, "values of model.depth"),
        ({"model.deepness": [1]}, "unknown setting"),
        ({"lr": [1e-3], "optimizer.lr": [1e-4]}, "give each setting once"),
        ({"model.depth": [1, "deep"]}, "depth"),
        ({"model.depth": list(range(1, 40)), "seed": list(range(40))}, "1,560 runs"),
    ],
)
def test_a_grid_that_cannot_work_is_refused_before_the_first_run(pictures, tiny, tmp_path, over, why):
    with pytest.raises(ConfigError, match=why):
        sweep(pictures, tmp_path / "out", over=over, **tiny)
    assert not (tmp_path / "out").exists()


def test_values_may_be_an_array_an_iterator_and_paths():
    over = {"lr": np.array([1e-3, 1e-2]), "seed": iter([0, 1]), "start": [Path("a"), Path("b")]}
    assert _axes(over) == {"optimizer.lr": [1e-3, 1e-2], "training.seed": [0, 1], "start": ["a", "b"]}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("data=2024-01-01,2024-02-01", ["2024-01-01", "2024-02-01"]),
        ("data=007,008", ["007", "008"]),
        ("task.source=en,no", ["en", "no"]),
        ("teacher=null,007", [None, "007"]),
        ("precision=fp32,bf16", ["fp32", "bf16"]),
        ("time-limit=1:30,2h", ["1:30", "2h"]),
        ("lr=1e-3,0.1", [0.001, 0.1]),
        ("batch-size=8,auto", [8, "auto"]),
        ("optimizer.betas=[0.9,0.99],[0.9,0.95]", [[0.9, 0.99], [0.9, 0.95]]),
    ],
)
def test_values_of_a_setting_that_is_text_stay_as_they_are_written(words, values):
    assert _axis(words) == (words.partition("=")[0].replace("-", "_"), values)


def test_a_picture_against_what_is_not_there_is_refused(pictures, tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"known: operations$"):
        sweep(pictures, tmp_path / "out", over={"seed": [0]}, against="model.depth", **tiny)


def test_names_that_would_be_alike_have_their_number(pictures, tiny, tmp_path):
    found = sweep(pictures, tmp_path / "out", over={"about": ["a/b", "a-b", "x" * 300]}, **tiny)
    assert [run.settings["about"] for _, run in found] == ["a/b", "a-b", "x" * 300]
    assert {"about=a-b,run=1", "about=a-b,run=2"} < {folder.name for folder in (tmp_path / "out").iterdir()}


def test_data_that_is_not_there_leaves_no_folder_that_stands_in_the_way(pictures, tiny, tmp_path, undrawn):
    with pytest.raises(DataError):
        sweep(tmp_path / "typo", tmp_path / "out", over={"seed": [0]}, **tiny)
    assert not (tmp_path / "out").exists()


def test_a_sweep_that_failed_before_its_first_run_may_be_another_one(tmp_path):
    _begin(tmp_path / "out", {"over": 1})
    _begin(tmp_path / "out", {"over": 2})
    (tmp_path / "out" / "seed=0").mkdir()
    with pytest.raises(ConfigError, match="holds a sweep of other settings"):
        _begin(tmp_path / "out", {"over": 3})
