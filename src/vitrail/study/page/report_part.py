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
    rows: Sequence[Mapping[str, Any]]
    task: Task
    """Task with the best model."""
    data: Any
    """A `vitrail.data.items.Data`."""
    split: str
    items: Sequence[Any]
    """Items of the split."""
    metrics: Metrics
    """Metrics of the best model on them, with what a report needs."""
    validation: Metrics | None
    """Metrics on the validation images, if the task's report chooses something by them."""
    plots: Path
    """Folder for pictures, which exists."""
    doubts: Sequence[str] = ()
    """Reasons to think that the model has hardly learned anything: then no maps of it are drawn."""
    floor: Floor | None = None
    """Scores of one answer for all items."""
    seconds: float = math.inf
    """Seconds that the report may take beside drawing its pictures."""


@dataclass(frozen=True)
class Part:
    """The parts of a report that depend on the task."""

    cards: Sequence[tuple[str, str]]
    """Large numbers, each with its description."""
    sections: Sequence[Markup]
    data: Markup
    """Table of what the splits hold."""
    caption: str = ""
    """Further notes on the curves of training."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Further files of the run folder, by name."""
    tables: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    """Further tables, as `vitrail.tasks.answer_table` has them."""
