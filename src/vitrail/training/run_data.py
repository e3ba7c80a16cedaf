"""The interface between a run and its kind of data."""

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
    """The model that a run has before its first epoch, saved as its first."""

    row: Row
    """Its metrics, as those of an epoch 0."""
    is_over: bool = False
    """True if the run has no time left for training."""


class BeforeSteps(NamedTuple):
    """Inputs of a pass over the training items before the first step."""

    learner: Learner
    samples: Samples
    validation: Samples
    """The items by which epochs are compared."""
    folder: RunFolder
    loader_of: Callable[[Samples], EpochLoader]
    """Makes a loader of samples, as the run does."""
    observer: Observer
    on_batch: Callable[[int], None]
    """Receives the size of every batch; raises `OutOfTimeError` once half of the remaining time is used."""


class RunData:
    """A kind of data: opens and checks a run's data, and derives settings and model from it.

    Every task's package has a ``data`` module with `DATA`, an instance of a subclass. In all methods ``source`` is the result of
    `open_source`, and ``start`` that of `open_start`, or None.

    Args:
        row: row of the task in the registry.
    """

    counts_batch_memory: ClassVar[bool] = False
    """True if every step passes full items to the model, so that the memory of a batch can be computed."""
    scored_with_run: ClassVar[bool] = False
    """True if only the run's task can score its model, because it outputs vectors or has no list of classes."""

    def __init__(self, row: TaskRow):
        self.row = row

    def open_start(self, reference: str) -> Any:
        """Open the trained model to start from; raises `ConfigError` if a run of this kind cannot start from it."""
        return open_model(reference)

    def load(self, folder: Path) -> Any:
        """Load the trained model of a run from its model folder."""
        return load_model(folder)

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: Any = None) -> Any:
        """Open the data of a new run, or of a ``run`` to continue, with that run's splits."""
        raise NotImplementedError

    def complete(self, settings: RunSettings, source: Any, start: Any) -> RunSettings:
        """Return the settings completed from the data, with absolute paths.

        Raises:
            ConfigError: settings that do not apply to such data.
            DataError: data that cannot be trained on.
        """
        raise NotImplementedError

    def check(self, source: Any, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        """Check every item before the first step, and return the items to skip: the reasons by name."""
        return {}

    def used(self, source: Any, bad: Container[str], settings: RunSettings) -> Any:
        """Return the data without the ``bad`` items, and with the requested fraction of the training split."""
        return learned_from(source.without(bad), settings)

    def advice(self, settings: RunSettings, source: Any) -> str | None:
        """Return one line of advice for the user, or None."""
        return None

    def warnings(self, settings: RunSettings, source: Any) -> list[str]:
        """Return warnings about suspicious data, one line each."""
        return []

    def files(self, source: Any) -> dict[str, bytes]:
        """Return the files that a run folder stores about the data: contents by file name."""
        return {}

    def preparation_of(self, settings: RunSettings, source: Any) -> Any:
        """Return the object that turns an item into the model's input."""
        raise NotImplementedError

    def start_model(self, settings: RunSettings, start: Any, source: Any) -> Any:
        """Build the model that the run starts with."""
        raise NotImplementedError

    def card(self, settings: RunSettings, source: Any) -> dict[str, Any]:
        """Return the data's part of a model card."""
        return {"labels": []}

    def has_first_model(self, settings: RunSettings, task: Task) -> bool:
        """Return whether `begin` returns a first model."""
        return False

    def begin(self, plan: RunPlan, task: Task, work: Work) -> FirstModel | None:
        """Train something before the first epoch of a run without a checkpoint, and return the run's first model, or None.

        An interrupted run repeats it.
        """
        return None

    def before_steps(self, work: BeforeSteps) -> None:
        """Compute what every step needs; a resumed run repeats it.

        Raises:
            OutOfTimeError: the time is over; its message says what follows for the run.
        """


def run_data(task: str) -> RunData:
    """Return the kind of data of a task."""
    data: RunData = task_row(task).module("data").DATA
    return data


def run_data_of(settings: RunSettings) -> RunData:
    """Return the kind of data of a run with these settings."""
    return run_data(settings.task.name)


def learned_from(source: Any, settings: RunSettings, pick: Callable[..., Any] = some_share) -> Any:
    """Return the data with the fraction of its training split that the settings request, selected by ``pick``."""
    share, seed = settings.data.train_share, settings.data.split_seed
    if share == 1:
        return source
    return replace(source, splits={**source.splits, "train": pick(source.splits["train"], share, seed)})


def check_command(settings: RunSettings, *, source: bool = True) -> str:
    """Return the command that checks the data of a run and lists all problems, with or without its ``source``."""
    place = [str(settings.data.source)] if source else []
    task = [] if settings.task.name == TaskSettings().name else ["--task", settings.task.name]
    return shlex.join(["vitrail", "data", "check", *place, *task])
