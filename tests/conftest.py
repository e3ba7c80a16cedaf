"""Fixtures of many tests: small images, finished runs, a trainer of a tiny model; and how all tests are run."""

import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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
from stick_figures import write_people
from tiny_pose import TINY_POSE
from vitrail import api
from vitrail import result as reporting
from vitrail.cli.app import main
from vitrail.config.configuration import deep_merge, nested
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import ImageData
from vitrail.deploy.bench import engines, measure
from vitrail.deploy.export import speeds
from vitrail.models import cost as costing
from vitrail.models.vision.vit import ViT
from vitrail.parts.cpu import calibration
from vitrail.result import write_report
from vitrail.study import speed
from vitrail.study.sections import context
from vitrail.tasks.translation.weights import TrainedTranslator
from vitrail.training.loop import memory_check
from vitrail.training.loop.trainer import Trainer
from vitrail.training.runs import run as running
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.model_folder.folder import TrainedModel
from words import TINY_TRANSLATOR, write_pairs

OPERATORS = declare_operators()
os.environ["VITRAIL_CACHE"] = ""  # expected speeds take the place of measured ones
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # as `hide_torch_warnings` does, which a forked process calls too late
LONG = (
    "test_processes.py", "test_contract.py", "test_export.py", "test_resume.py", "test_study.py", "test_docs.py",
    "test_resnet.py", "test_translate.py", "test_quantise.py", "test_export_model.py", "test_task_contract.py", "test_network.py",
    "test_trainer.py",
)  # fmt: skip
"""Files of long tests. They come first, so that no process is left alone with one at the end."""
NO_TIME = "there is no time left"
END = pytest.StashKey[float]()
"""The time to stop at."""

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
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add a limit of time, for `make quick`."""
    parser.addoption("--seconds", type=float, help="skip the tests that are left after so many seconds; long files come last")


def pytest_configure() -> None:
    """Hear signals again that a shell ignores in the background or under nohup: tests send them to runs and servers."""
    for name in ("SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files of long tests first, or last where time is limited. Leave what opens a browser to `make soak`."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("soak")
    places = {name: place - len(LONG) for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, 0), reverse=bool(config.getoption("seconds")))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt all imported modules from garbage collection, which takes a second each time, and collect more rarely."""
    session.config.stash[END] = time.monotonic() + (session.config.getoption("seconds") or float("inf"))
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for which there is no time left."""
    if time.monotonic() > item.config.stash[END]:
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print in one line how many tests did not run because a program or time was missing."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports if isinstance(report.longrepr, tuple))
    missing = [f"{reason} for {count} tests" for reason, count in reasons.items() if reason.startswith("there is no ")]
    if missing:
        terminalreporter.write_line(f"Not run: {'; '.join(missing)}")


@pytest.fixture(scope="session", autouse=True)
def _export_setup_once() -> None:
    """Let torch register operators once, and not for every graph, which takes a third of the time of an export."""
    from torch._export import utils
    from torch.fx import config
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
    config.do_not_emit_stack_traces = True


@pytest.fixture(scope="session", autouse=True)
def _cost_once() -> None:
    """Count the cost of a model once: every run counts it four times, which takes longer than the training of a tiny one."""
    cached = cache(costing.cost)
    for module in (costing, memory_check, running, reporting, context):
        module.cost = cached


@pytest.fixture(scope="module", autouse=True)
def _collect_once() -> Iterator[None]:
    """Exempt what is left after a file of tests from garbage collection, which would take two seconds each time in the end."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> None:
    """Do not wait for the disk; test_files.py and test_checkpoint.py test the order of these calls."""
    os.fsync = lambda file: None


@pytest.fixture(scope="session", autouse=True)
def _short_timings() -> None:
    """Measure speeds for a moment; `vitrail.deploy.bench.measure` and `vitrail.study.speed` have tests of their own."""
    measured = speed._measured

    def timed(works: Mapping[str, Any], pixels: torch.Tensor, *, seconds: float = 1.0) -> dict[str, measure.Timing]:
        return measure.timed(works, pixels, seconds=0.01)

    measure.SETTLE = 0.001
    speeds.timed = engines.timed = timed
    speed._measured = lambda model, size, batch, seconds: measured(model, size, batch, 0.01)
    calibration.LEAST, calibration.TURNS, calibration.LENGTHS = 0.0, 1, (5, 9)


@pytest.fixture(scope="session")
def tiny() -> dict:
    """Return settings, by dotted name, of a run of the ``scratch`` recipe that takes no time."""
    return dict(TINY)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """Write three classes without splits: eight images each, of 10×10 pixels."""
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
    """Return a finished run on ``pictures``; tests must not change it."""
    return api.train(
        pictures, tmp_path_factory.mktemp("runs") / "colours", **{**TINY, "optimizer.lr": 0.01, "training.epochs": 8}
    )


@pytest.fixture
def unreported(monkeypatch) -> None:
    """Leave out figures and pages of runs, which take longer than the training of a tiny model."""
    monkeypatch.setattr(api, "write_report", lambda finished: None)


@pytest.fixture
def reported(unreported, monkeypatch) -> None:
    """Write the figures and pages after all, in a file of tests without them."""
    monkeypatch.setattr(api, "write_report", write_report)


@pytest.fixture(scope="session")
def translated_run(tmp_path_factory) -> api.Run:
    """Return a finished run that translates word by word; tests must not change it."""
    data = write_pairs(tmp_path_factory.mktemp("words") / "pairs.tsv")
    return api.train(data, tmp_path_factory.mktemp("runs") / "words", **TINY_TRANSLATOR)


@pytest.fixture(scope="session")
def people(tmp_path_factory) -> Path:
    """Write eight images with two stick figures each."""
    return write_people(tmp_path_factory.mktemp("people"), 8, people=2)


@pytest.fixture(scope="session")
def pose_run(people, tmp_path_factory) -> api.Run:
    """Return a finished run on ``people``, without figures and a page; tests must not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "write_report", lambda finished: None)
        return api.train(people, tmp_path_factory.mktemp("runs") / "people", **TINY_POSE)


@pytest.fixture(scope="session")
def translator(translated_run) -> TrainedTranslator:
    """Return the model of ``translated_run``; tests must not change it."""
    return translated_run.trained


@pytest.fixture(scope="session")
def shades() -> ImageData:
    """Return `shades_data`."""
    return shades_data()


@pytest.fixture
def make_trainer(shades, tmp_path):
    """Return a function: ``make_trainer("name", **{"training.epochs": 3})`` is a trainer whose run folder has that name.

    ``teacher`` is a model to learn from. ``make_trainer.finished`` has trained to the end. ``make_trainer.reopen(trainer)`` is a
    new trainer of the same folder. Each call seeds torch, so a run must follow before the next call.
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
    """Return a function: ``vitrail("models", "--json")`` runs a command and returns its `Answer`."""

    def call(*words: object) -> Answer:
        capsys.readouterr()
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        return Answer(code, *capsys.readouterr())

    return call
