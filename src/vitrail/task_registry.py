"""The tasks, one row each. The code of a task is in its folder of `vitrail.tasks` (its room), imported when it is used."""

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from vitrail.errors import ModelFileError, unknown

RoomModule = Literal[
    "settings",
    "data",
    "task",
    "report",
    "weights",
    "predictor",
    "evaluate",
    "export",
    "service",
    "inspection",
    "study.sections",
    "compared",
]
"""Modules of a room that the rest of the library imports by name."""
Labels = Literal["required", "optional", "none"]
"""Labels of images: required, read where the data has some, or never read."""
Reads = Literal["images", "texts"]
Answers = Literal["vector", "heatmaps", "text", "noise", "masks"]


@dataclass(frozen=True)
class TaskRow:
    """A task, before anything of it is imported."""

    name: str
    """The value of ``--task``, and of ``task.name`` in a run's settings."""
    room: str
    """The folder in `vitrail.tasks` with the task's code."""
    labels: Labels = "none"
    items: Literal["images", "sentences", "people", "captions", "masks"] = "images"
    """Kind of the data."""
    recipe: str | None = None
    """The default recipe of a run; None if model and data decide."""
    reads: Reads = "images"
    answers: Answers = "vector"
    """Input and output of its models. The first task with the same two defines the class of trained model, in `weights`."""
    model_types: tuple[str, ...] = ()
    """Values of ``model_type`` in a ``config.json`` of transformers that mean a model of this task."""

    def module(self, name: RoomModule) -> Any:
        """Return a module of the task's room, imported now; raises `ModelFileError` where the room has none."""
        try:
            return import_module(f"vitrail.tasks.{self.room}.{name}")
        except ModuleNotFoundError:
            if self.has(name):  # the module exists: a library that it imports is missing
                raise
        what = f"a model of --task {self.name} has no {name}"
        raise ModelFileError(what, where=f"--task {self.name}", hint="vitrail --help lists what other commands are for")

    def has(self, name: RoomModule) -> bool:
        """Return whether the task's room has a module; imports nothing of it."""
        with suppress(ModuleNotFoundError):  # the room has no such subfolder
            return find_spec(f"vitrail.tasks.{self.room}.{name}") is not None
        return False

    @property
    def settings(self) -> Any:
        """The class of the task's settings, a `vitrail.tasks.settings.TaskSettings`."""
        return self.module("settings").SETTINGS


ROWS = (
    TaskRow("classification", "classification", "required"),
    TaskRow("ordinal", "ordinal", "required"),
    TaskRow("mae", "mae", recipe="mae"),
    TaskRow("dino", "dino", "optional", recipe="dino"),
    TaskRow("distill", "distill", "optional", recipe="distill"),
    TaskRow("diffusion", "diffusion", "optional", recipe="diffusion", answers="noise"),
    TaskRow("translate", "translation", "none", "sentences", "translate", "texts", "text", ("marian",)),
    TaskRow("caption", "captioning", "none", "captions", "caption", answers="text", model_types=("vision-encoder-decoder",)),
    TaskRow("segment", "segmentation", "none", "masks", "segment", answers="masks"),
    TaskRow("pose", "pose", "none", "people", "pose", answers="heatmaps"),  # last: any other JSON may be people
)

TASKS = {row.name: row for row in ROWS}


def task_row(name: str) -> TaskRow:
    """Return the row of a task; raises `ConfigError` for an unknown name."""
    if name not in TASKS:
        raise unknown("task", name, list(TASKS), where="--task")
    return TASKS[name]


def row_of_kind(reads: Reads, answers: Answers) -> TaskRow:
    """Return the row whose room has trained models, predictors and exports for this input and output."""
    return next(row for row in ROWS if (row.reads, row.answers) == (reads, answers))
