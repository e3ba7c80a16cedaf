"""The contract between a run and its kind of data."""

import shlex
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from vitrail.config.settings import RunSettings
from vitrail.data.loading.batches import Samples
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import some_share
from vitrail.runtime.observer import Observer, Row
from vitrail.runtime.processes import Processes
from vitrail.task_registry import TaskRow, task_row
from vitrail.tasks.settings import TaskSettings
from vitrail.tasks.task import Task
from vitrail.training.loop.learner import Learner
from vitrail.training.runs.plan import RunPlan, Work
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.reference import load_model, open_model


@dataclass(frozen=True)
class FirstModel:
    """The model that a run has before its first epoch, and keeps as its first."""

    row: Row
    """The metrics, as of an epoch 0."""
    is_over: bool = False
    """True where the run has no time for anything more but its end."""


class BeforeSteps(NamedTuple):
    """A pass over the training items before the first step of a process."""

    learner: Learner
    samples: Samples
    validation: Samples
    """The items by which epochs are compared."""
    folder: RunFolder
    loader_of: Callable[[Samples], EpochLoader]
    """Puts samples into batches, as the run does."""
    observer: Observer
    on_batch: Callable[[int], None]
    """Gets the size of every batch; raises `OutOfTimeError` once half of the time that was left is over."""


class RunData:
    """A kind of data of a run: how it is opened and checked, and what it decides.

    The ``data`` module of a task's room has `DATA`, an object of a subclass. A ``source`` is what `open_source` returns, a
    ``start`` what `open_start` returns or None.

    Args:
        row: of the task.
    """

    counts_batch_memory: ClassVar[bool] = False
    """True where every step shows the model whole items, so that the memory of a batch can be counted."""
    scored_with_run: ClassVar[bool] = False
    """True where only the task of a run can score its model, which gives vectors, or does not know its classes in order."""

    def __init__(self, row: TaskRow):
        self.row = row

    def open_start(self, reference: str) -> Any:
        """Open the trained model behind a MODEL, to start from; raises `ConfigError` for one that a run cannot start from."""
        return open_model(reference)

    def load(self, folder: Path) -> Any:
        """Read the trained model of a run from its folder."""
        return load_model(folder)

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: Any = None) -> Any:
        """Open the data of a new run, or as a ``run`` that goes on has it."""
        raise NotImplementedError

    def complete(self, settings: RunSettings, source: Any, start: Any) -> RunSettings:
        """Return the settings with what the data decides, and with absolute paths.

        Raises:
            ConfigError: settings that mean nothing for such data.
            DataError: data that cannot be learned from.
        """
        raise NotImplementedError

    def check(self, source: Any, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        """Look at every item before the first step, and return those that are left out, by name, with the reason."""
        return {}

    def used(self, source: Any, bad: Container[str], settings: RunSettings) -> Any:
        """Return the data without the ``bad`` items, and with the requested share of the training split."""
        return learned_from(source.without(bad), settings)

    def advice(self, settings: RunSettings, source: Any) -> str | None:
        """Return a line of what one could do better, or none."""
        return None

    def warnings(self, settings: RunSettings, source: Any) -> list[str]:
        """Return what is suspicious about the data, a line each."""
        return []

    def files(self, source: Any) -> dict[str, bytes]:
        """Return what of the data a run folder holds, by the names of files."""
        return {}

    def preparation_of(self, settings: RunSettings, source: Any) -> Any:
        """Return what makes the model's input of an item."""
        raise NotImplementedError

    def start_model(self, settings: RunSettings, start: Any, source: Any) -> Any:
        """Build the model that the run begins with."""
        raise NotImplementedError

    def card(self, settings: RunSettings, source: Any) -> dict[str, Any]:
        """Return the data's part of a model card."""
        return {"labels": []}

    def has_first_model(self, settings: RunSettings, task: Task) -> bool:
        """Return whether `begin` gives a run its first model."""
        return False

    def begin(self, plan: RunPlan, task: Task, work: Work) -> FirstModel | None:
        """Learn something before the first epoch of a run without a checkpoint, and return its first model, if it has one.

        An interrupted run does it anew.
        """
        return None

    def before_steps(self, work: BeforeSteps) -> None:
        """Compute what every step needs; a run that goes on does it again.

        Raises:
            OutOfTimeError: what this means for the run, in a sentence.
        """


def run_data(task: str) -> RunData:
    """Return the kind of data of a task."""
    data: RunData = task_row(task).module("data").DATA
    return data


def run_data_of(settings: RunSettings) -> RunData:
    """Return the kind of data of a run with these settings."""
    return run_data(settings.task.name)


def learned_from(source: Any, settings: RunSettings, pick: Callable[..., Any] = some_share) -> Any:
    """Return the data with the share of its training split that the settings request, chosen by ``pick``."""
    share, seed = settings.data.train_share, settings.data.split_seed
    if share == 1:
        return source
    return replace(source, splits={**source.splits, "train": pick(source.splits["train"], share, seed)})


def check_command(settings: RunSettings, *, source: bool = True) -> str:
    """Return the command that lists what is wrong with the data of a run, with its ``source`` or without."""
    place = [str(settings.data.source)] if source else []
    task = [] if settings.task.name == TaskSettings().name else ["--task", settings.task.name]
    return shlex.join(["vitrail", "data", "check", *place, *task])
