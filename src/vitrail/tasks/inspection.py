"""Checks and samples of a task's data before training: `vitrail data check` and `vitrail data show`.

Each task's room has an `Inspection` named ``INSPECTION`` in its module ``inspection``, which imports no torch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.data.checks.found import Found
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Note, Observer
from vitrail.task_registry import TASKS, TaskRow, task_row

LANGUAGES = frozenset({"source", "target"})
"""Options for data of sentences only."""


@dataclass(frozen=True)
class InspectionRequest:
    """The data to check or show, with the options of the commands; None for an option that is not given."""

    data: str
    source: str | None = None
    target: str | None = None
    bad_lines: str | None = None
    config: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task by their dotted names."""
    model: str | None = None
    out: str | None = None
    observer: Observer = field(default_factory=Observer)

    @property
    def progress(self) -> dict[str, Callable[[int], None]]:
        """Callbacks for a progress bar: ``on_start`` with the number of images, ``on_image`` after each image."""
        return {"on_start": lambda count: self.observer.begin("checking", count), "on_image": self.observer.advance}

    @property
    def languages(self) -> tuple[str, str]:
        """The source and target language; raises `ConfigError` if one is not given."""
        if self.source is None or self.target is None:
            where = "--target" if self.target is None else "--source"
            raise ConfigError("one language of two is given", where=where, hint="give both: --source en --target de")
        return self.source, self.target


class Inspection:
    """The check and samples of one task's data; ``labelled`` is True if every image needs a label."""

    options: frozenset[str] = frozenset()
    """Fields of `InspectionRequest` other than ``data`` that the check uses."""

    def __init__(self, *, labelled: bool = True):
        self.labelled = labelled

    def tells(self, source: str) -> bool:
        """Return whether a file can only be for this task."""
        return False

    def check(self, request: InspectionRequest) -> Found:
        """Check all items, by default all images; raises `DataError` if the data cannot be read at all."""
        from vitrail.data.checks.check import check_data

        return check_data(request.data, labelled=self.labelled, **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        """Return a figure of some items as a run prepares and augments them; for tasks whose items are not complete images.

        ``run`` is the complete `vitrail.config.settings.RunSettings`; ``note`` receives remarks on the data.
        """
        raise NotImplementedError

    def texts(self, request: InspectionRequest, split: str, count: int, seed: int, note: Note) -> Iterator[str]:
        """Yield lines with some items, for data that is shown as text."""
        raise NotImplementedError


def inspection_of(row: TaskRow) -> Inspection:
    """Return the inspection in a task's room."""
    inspection: Inspection = row.module("inspection").INSPECTION
    return inspection


def row_for(data: str, task: str | None = None, *, languages: bool = False) -> TaskRow:
    """Return the task of some data: ``task`` if given, else the task with languages or of this file, else the first one.

    Raises:
        ConfigError: the task does not exist, or has no languages.
    """
    if task is not None:
        row = task_row(task)
        if languages and not inspection_of(row).options >= LANGUAGES:
            raise ConfigError(f"{task} has no languages", where="--task", hint="leave out --source and --target, or --task")
        return row
    first, *_ = rows = list(TASKS.values())
    if languages:
        return next(row for row in rows if inspection_of(row).options >= LANGUAGES)
    return next((row for row in rows if inspection_of(row).tells(data)), first)
