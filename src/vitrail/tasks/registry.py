"""The tasks, a row each. Imports no torch until a task is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vitrail.errors import unknown
from vitrail.lazy import lazily
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import for_captions, for_heatmaps
from vitrail.tasks.settings import CaptionSettings, PoseSettings, ReconstructionSettings, TaskSettings, TranslationSettings

if TYPE_CHECKING:
    from vitrail.tasks.task import Task


@dataclass(frozen=True)
class TaskRow:
    """All that the rest of the library knows of a task before it is made."""

    name: str
    """The value of ``--task``, and of ``task.name`` in a run's settings."""
    kinds: Mapping[str, str]
    """The classes of `vitrail.tasks` that may learn it, each with its file."""
    settings: type[TaskSettings] = TaskSettings
    recipe: str | None = None
    """The recipe of a run that names none; None where model and data decide."""
    labelled: bool = True
    """Whether images need labels, and the model a head for their classes."""
    items: Literal["images", "sentences", "people", "captions"] = "images"
    """What it learns from: whole images, sentences with their translations, people in images, or images with sentences."""
    config_from: Callable[[ModelConfig, Mapping[str, Any]], ModelConfig] | None = None
    """Makes of the configuration of a model to start from the one that the task needs, given what recipe, file and flags say of
    the model; None takes it as it is."""
    kind_of: Callable[[bool, bool], str] | None = None
    """Which class it is, by whether images have several labels and whether there is a teacher; None where there is one class."""


ROWS = (
    TaskRow(
        "classification",
        {"Classification": "classification", "MultiLabel": "multi_label", "Distillation": "distillation"},
        kind_of=lambda several, teacher: "Distillation" if teacher else "MultiLabel" if several else "Classification",
    ),
    TaskRow(
        "mae",
        {"Reconstruction": "reconstruction"},
        ReconstructionSettings,
        recipe="mae",
        labelled=False,
    ),
    TaskRow(
        "translate",
        {"Translation": "translation"},
        TranslationSettings,
        recipe="translate",
        labelled=False,
        items="sentences",
    ),
    TaskRow(
        "pose",
        {"PoseEstimation": "pose"},
        PoseSettings,
        recipe="pose",
        labelled=False,
        items="people",
        config_from=for_heatmaps,
    ),
    TaskRow(
        "caption",
        {"Captioning": "captioning"},
        CaptionSettings,
        recipe="caption",
        labelled=False,
        items="captions",
        config_from=for_captions,
    ),
)

TASKS = {row.name: row for row in ROWS}

_class_of = lazily("vitrail.tasks", {kind: module for row in ROWS for kind, module in row.kinds.items()})


def task_row(name: str) -> TaskRow:
    """The row of a task; raises `ConfigError` where there is none."""
    if name not in TASKS:
        raise unknown("task", name, list(TASKS), where="--task")
    return TASKS[name]


def task_class(name: str, *, multi_label: bool = False, teacher: bool = False) -> "type[Task]":
    """The class that learns a task from data of this kind, with a teacher or without."""
    row = task_row(name)
    kind: type[Task] = _class_of(row.kind_of(multi_label, teacher) if row.kind_of else next(iter(row.kinds)))
    return kind
