"""The options of a model study."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.runtime.observer import Observer


@dataclass(frozen=True)
class StudyRequest:
    """Options of a study; ``layer``, ``head`` and ``query`` select the attention to draw, ``joints`` the joints."""

    model: Any = None
    data: str | Path | None = None
    split: str | None = None
    images: int = 100
    layer: int | None = None
    head: int | None = None
    query: tuple[int, int] | None = None
    joints: Sequence[str] = ()
    observer: Observer = field(default_factory=Observer)
