"""What many tests need: small images, a tiny run trained on them, and a trainer for a tiny model."""

import gc
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from shades import SHADES, shades_data

from peers import declare_operators
from vitrail import api
from vitrail import result as reporting
from vitrail.cli.app import main
from vitrail.config.configuration import deep_merge, nested
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import ImageData
from vitrail.deploy.bench import engines, measure
from vitrail.models import cost as costing
from vitrail.models.vision.vit import ViT
from vitrail.parts.cpu import calibration
from vitrail.result import write_report
from vitrail.study import speed
from vitrail.study.sections import context
from vitrail.tasks.classification.judging import worth
from vitrail.tasks.translation.weights import TrainedTranslator
from vitrail.training.loop import memory_check as fitting
from vitrail.training.loop.trainer import Trainer
from vitrail.training.runs import run as running
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.model_folder.folder import TrainedModel
from words import TINY_TRANSLATOR, write_pairs

OPERATORS = declare_operators()
os.environ["VITRAIL_CACHE"] = ""  # tests compute with what is likely, and measure no machine
LONG = (
    "test_processes.py", "test_soak.py", "test_contract.py", "test_export.py", "test_resume.py", "test_study.py", "test_docs.py",
    "test_resnet.py", "test_translate.py", "test_quantise.py", "test_export_model.py", "test_task_contract.py", "test_network.py",
    "test_trainer.py", "test_site.py",
)  # fmt: skip
"""Files of tests that take long: they come first, so that no process is left alone with one at the end."""

TINY = {
    "model.name": "ViT-Ti/4",
    "model.image_size": 8,
    "model.dim": 16,
    "model.depth": 1,
    "model.heads": 2,
    "model.mlp_dim": 32,
    "training.epochs": 2,
    "training.batch_size": 8,
    "augmentation.crop": "none",
}


@dataclass(frozen=True)
class Answer:
    """What a command left behind: its exit code and what it printed."""

    code: int
    out: str
    err: str


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking through it for garbage takes a second, at each of hundreds of collections.

    What is imported later, by exports above all, takes a tenth of everything, unless it is looked through less often.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_configure() -> None:
    """Under nohup, or in the background of a shell, signals are ignored that runs and servers are tested to hear."""
    for name in ("SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session", autouse=True)
def _what_is_the_same_for_every_export_is_done_once() -> None:
    """Else torch registers the operators of ONNX, goes through its own and looks up the lines of the source for every graph,
    which takes a third of the time.
    """
    from torch._export import utils
    from torch.fx import config
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
    config.do_not_emit_stack_traces = True


@pytest.fixture(scope="session", autouse=True)
def _a_model_is_counted_once() -> None:
    """Every run counts its model four times, which takes longer than its training; what has tests of its own counts anew."""
    counted = cache(costing.cost)
    for module in (costing, fitting, running, reporting, context):
        module.cost = counted


@pytest.fixture(scope="session", autouse=True)
def _no_power_is_lost() -> None:
    """Nobody waits for the disk; what waits when is tested by its calls, in test_files.py and test_checkpoint.py."""
    os.fsync = lambda file: None


@pytest.fixture(scope="session", autouse=True)
def _speeds_are_measured_for_a_moment() -> None:
    """They mean nothing here; `vitrail.deploy.bench.measure` and `vitrail.study.speed` have tests of their own."""

    of_a_size = speed._measured

    def timed(works: Mapping[str, Any], pixels: torch.Tensor, *, seconds: float = 1.0) -> dict[str, measure.Timing]:
        return measure.timed(works, pixels, seconds=0.01)

    measure.SETTLE = 0.001
    worth.timed = engines.timed = timed
    speed._measured = lambda model, size, batch, seconds: of_a_size(model, size, batch, 0.01)
    calibration.LEAST, calibration.TURNS, calibration.LENGTHS = 0.0, 1, (5, 9)


@pytest.fixture(scope="session")
def tiny() -> dict:
    """Settings, by dotted name, of a run of the ``scratch`` recipe that takes no time."""
    return dict(TINY)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """Three classes, without splits: eight images each, of 10×10 pixels."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    random = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(0, 80, (10, 10, 3), dtype=np.uint8)
            pixels[..., channel] += 150
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def run(pictures, tmp_path_factory) -> api.Run:
    """A finished run on ``pictures``; tests must leave it as it is."""
    return api.train(
        pictures, tmp_path_factory.mktemp("runs") / "colours", **{**TINY, "optimizer.lr": 0.01, "training.epochs": 8}
    )


@pytest.fixture
def unreported(monkeypatch) -> None:
    """Runs without pictures and pages, which take longer than the training of a tiny model."""
    monkeypatch.setattr(api, "write_report", lambda finished: None)


@pytest.fixture
def reported(unreported, monkeypatch) -> None:
    """A test whose runs have them after all, in a file of others."""
    monkeypatch.setattr(api, "write_report", write_report)


@pytest.fixture(scope="session")
def translated_run(tmp_path_factory) -> api.Run:
    """A finished run that translates word by word; tests must leave it as it is."""
    data = write_pairs(tmp_path_factory.mktemp("words") / "pairs.tsv")
    return api.train(data, tmp_path_factory.mktemp("runs") / "words", **TINY_TRANSLATOR)


@pytest.fixture(scope="session")
def translator(translated_run) -> TrainedTranslator:
    """Its model; tests must leave it as it is."""
    return translated_run.trained


@pytest.fixture(scope="session")
def shades() -> ImageData:
    """See `shades_data`."""
    return shades_data()


@pytest.fixture
def make_trainer(shades, tmp_path):
    """``make_trainer("name", **{"training.epochs": 3})``: a trainer whose run folder has that name.

    ``teacher`` is a model to learn from. ``make_trainer.finished`` has trained to the end; ``make_trainer.reopen(trainer)``
    is a new one for the same folder.
    Making one seeds torch, so a run must follow before the next is made.
    """

    def make(name: str = "run", teacher: TrainedModel | None = None, **settings: Any) -> Trainer:
        resolved = RunSettings.read(deep_merge(SHADES, nested(settings)))
        folder = RunFolder.create(tmp_path / name, resolved, None)
        return reopen(folder, resolved, teacher)

    def reopen(folder: RunFolder, resolved: RunSettings, teacher: TrainedModel | None = None) -> Trainer:
        torch.manual_seed(resolved.training.seed)
        preparation = Preparation.standard(resolved.model.image_size, resolved.model.channels)
        task = create_task(resolved, ViT(resolved.model.config), preparation, shades, teacher)
        return Trainer(resolved, task, shades, folder)

    def finished(name: str, **settings: Any) -> Trainer:
        trainer = make(name, **settings)
        trainer.run()
        return trainer

    make.finished = finished
    make.reopen = lambda trainer, teacher=None: reopen(RunFolder(Path(trainer.folder.path)), trainer.settings, teacher)
    return make


@pytest.fixture
def vitrail(capsys):
    """``vitrail("models", "--json")`` runs a command and returns its `Answer`."""

    def call(*words: object) -> Answer:
        capsys.readouterr()
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        return Answer(code, *capsys.readouterr())

    return call
