"""What a report is made from, and its parts that depend on the task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.study.page.page import Markup
from vitrail.tasks.floor import Floor
from vitrail.tasks.task import Metrics, Task

SPLIT_WORDS = {"train": "training ", "val": "validation ", "test": "test ", "all": ""}


@dataclass(frozen=True)
class Reported:
    """A run as its report shows it."""

    settings: Mapping[str, Any]
    """The complete configuration."""
    rows: Sequence[Mapping[str, Any]]
    """Metrics of every epoch."""
    task: Task
    """What the best model has learned."""
    data: Any
    """A `vitrail.data.items.Data`."""
    split: str
    """Which items the report is about."""
    items: Sequence[Any]
    """These items."""
    metrics: Metrics
    """Of the best model on them; made to keep what a report needs."""
    validation: Metrics | None
    """On the validation images, where the task's report chooses something by them."""
    plots: Path
    """The folder for pictures, which exists."""
    doubts: Sequence[str] = ()
    """Why the model has hardly learned anything: then no maps of it are drawn."""
    floor: Floor | None = None
    """The scores of one answer for all items."""
    seconds: float = math.inf
    """Seconds that the report may take beside drawing its pictures."""


@dataclass(frozen=True)
class Part:
    """What of a report depends on the task."""

    cards: Sequence[tuple[str, str]]
    """Numbers to begin with, each with what it is."""
    sections: Sequence[Markup]
    """Everything there is to show of the answers."""
    data: Markup
    """What the splits hold."""
    caption: str = ""
    """What else there is to say of the curves of training."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Further files of the run folder, by name."""
    tables: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    """And tables, as `vitrail.tasks.answer_table` has them."""
