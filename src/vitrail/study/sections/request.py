"""What a person asks of a study of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.runtime.observer import Observer


@dataclass(frozen=True)
class StudyRequest:
    """A study as it is asked for: what a task's ``study.sections`` makes its items and its page of.

    Args:
        model: the MODEL or the loaded model.
        data: where items are; a run's own data by default.
        split, images: which of them to look at, and how many.
        layer, head, query: of the attention that is drawn; None for the usual one.
        joints: names of those whose maps are drawn, of a model that finds joints.
        observer: gets the progress.
    """

    model: Any = None
    data: str | Path | None = None
    split: str | None = None
    images: int = 100
    layer: int | None = None
    head: int | None = None
    query: tuple[int, int] | None = None
    joints: Sequence[str] = ()
    observer: Observer = field(default_factory=Observer)
