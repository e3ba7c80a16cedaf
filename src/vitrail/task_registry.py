"""The tasks, a row each. Everything else about a task stands in its room and is imported when it is used."""

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
"""Modules of a room that the rest of the library asks for by name."""
Labels = Literal["required", "optional", "none"]
"""Labels of images: required, read where the data has some, or never read."""
Reads = Literal["images", "texts"]
Answers = Literal["vector", "heatmaps", "text", "noise"]


@dataclass(frozen=True)
class TaskRow:
    """A task, before anything of it is imported."""

    name: str
    """The value of ``--task``, and of ``task.name`` in a run's settings."""
    room: str
    """The folder in `vitrail.tasks` that holds all that is particular about the task."""
    labels: Labels = "none"
    items: Literal["images", "sentences", "people", "captions"] = "images"
    """Kind of the data."""
    recipe: str | None = None
    """The recipe of a run that names none; None where model and data decide."""
    reads: Reads = "images"
    answers: Answers = "vector"
    """Input and output of its models; the room of the first task with both has the kind of trained model in `weights`."""
    model_types: tuple[str, ...] = ()
    """Names in ``config.json`` of transformers that belong to such models alone."""

    def module(self, name: RoomModule) -> Any:
        """Return a module of the task's room, imported now; raises `ModelFileError` where the room has none."""
        try:
            return import_module(f"vitrail.tasks.{self.room}.{name}")
        except ModuleNotFoundError:
            if self.has(name):  # what is missing is a library that the module imports
                raise
        what = f"this is not for a model of --task {self.name}: it has no {name}"
        raise ModelFileError(what, where=f"--task {self.name}", hint="vitrail --help lists what other commands are for")

    def has(self, name: RoomModule) -> bool:
        """Return whether the task's room has a module; imports nothing of it."""
        with suppress(ModuleNotFoundError):  # of a sub-room that the room does not have
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
    TaskRow("diffusion", "diffusion", "optional", recipe="diffusion", answers="noise"),
    TaskRow("translate", "translation", "none", "sentences", "translate", "texts", "text", ("marian",)),
    TaskRow("caption", "captioning", "none", "captions", "caption", answers="text", model_types=("vision-encoder-decoder",)),
    TaskRow("pose", "pose", "none", "people", "pose", answers="heatmaps"),  # last: any other JSON may be people
)

TASKS = {row.name: row for row in ROWS}


def task_row(name: str) -> TaskRow:
    """Return the row of a task; raises `ConfigError` where there is none."""
    if name not in TASKS:
        raise unknown("task", name, list(TASKS), where="--task")
    return TASKS[name]


def row_of_kind(reads: Reads, answers: Answers) -> TaskRow:
    """Return the row whose room has the trained models, predictors and exports of models that read and answer so."""
    return next(row for row in ROWS if (row.reads, row.answers) == (reads, answers))
