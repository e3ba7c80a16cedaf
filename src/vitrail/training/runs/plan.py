"""A run that is decided, and a run at work."""

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
    """All decisions about a run, made before anything is written; nothing changes them later."""

    folder: Path
    settings: RunSettings
    """Complete: what the data and the machine decide is in them."""
    data: Data
    """Without the items that are left out."""
    bad: dict[str, str]
    """The items that are left out, by name, and why."""
    preparation: Any
    """Makes the model's input of an item."""
    start: Any = None
    """The trained model to start from; None where there is none, or a checkpoint has its weights."""
    teacher: AnyTeacher | None = None
    transform: Transform | None = None
    """The user's own change to training images."""


@dataclass(frozen=True)
class Work:
    """The run folder of a run at work, with its observer, processes, signals and clock."""

    folder: RunFolder
    observer: Observer
    group: Processes
    signals: Signals
    clock: Clock
