"""Input of a report, and its parts that depend on the task."""

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
    """A run as the input of its report."""

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
    """Metrics of the best model on these items, with the extras that a report needs."""
    validation: Metrics | None
    """Metrics on the validation images, if the task's report chooses thresholds or the like by them."""
    plots: Path
    """Existing folder for images."""
    doubts: Sequence[str] = ()
    """Reasons to doubt that the model has learned anything; if there are any, no maps are drawn."""
    floor: Floor | None = None
    """Scores of a constant prediction for all items."""
    seconds: float = math.inf
    """Seconds that the report may take in addition to drawing its figures."""


@dataclass(frozen=True)
class Part:
    """The parts of a report that depend on the task."""

    cards: Sequence[tuple[str, str]]
    """Large numbers, each with its description."""
    sections: Sequence[Markup]
    data: Markup
    """Table of the splits' contents."""
    caption: str = ""
    """Further notes below the training curves."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Further files of the run folder, by name."""
    tables: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    """Further tables, as in `vitrail.tasks.answer_table`, by file name."""
