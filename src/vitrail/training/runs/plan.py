"""The plan of a run, and the objects that it works with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.config.settings import RunSettings
from vitrail.data.images.transform import Transform
from vitrail.data.items import Data
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.runtime.signals import Signals
from vitrail.tasks.teachers import AnyTeacher
from vitrail.training.loop.clock import Clock
from vitrail.training.runs.run_folder import RunFolder


@dataclass(frozen=True)
class RunPlan:
    """All decisions about a run, made before anything is written; they never change later."""

    folder: Path
    settings: RunSettings
    """Complete settings, including those that depend on the data and the machine."""
    data: Data
    """The data without skipped items."""
    bad: dict[str, str]
    """The skipped items: reasons by name."""
    preparation: Any
    """Turns an item into the model's input."""
    start: Any = None
    """The trained model to start from; None without one, or if a checkpoint has the weights."""
    teacher: AnyTeacher | None = None
    transform: Transform | None = None
    """The user's own transform of training images."""


@dataclass(frozen=True)
class Work:
    """The run folder of a running training, with its observer, processes, signals and clock."""

    folder: RunFolder
    observer: Observer
    group: Processes
    signals: Signals
    clock: Clock
