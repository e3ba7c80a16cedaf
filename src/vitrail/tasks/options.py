"""Options of one prediction or evaluation that belong to a task, and the refusal of those that belong to others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from vitrail.errors import ConfigError, ModelFileError, VitrailError, unknown
from vitrail.files import path_of
from vitrail.settings import Settings
from vitrail.task_registry import TASKS, RoomModule, TaskRow

OptionPath = Annotated[Path, BeforeValidator(path_of)]
"""A file or folder, which may be named by a text."""


class Options(Settings):
    """Options of a task. One that is not given has its default."""

    refusal: ClassVar[str] = ""
    """Error for an option that a model of this task does not take, though others do."""

    @classmethod
    def missing(cls, where: object) -> ModelFileError | None:
        """Return the error for a model of another task that is given an option of this task alone; None for the model's own."""
        return None


def read_options(
    row: TaskRow, module: RoomModule, options: Mapping[str, Any], model: object, usual: type[Options] = Options
) -> Any:
    """Validate options by the `SETTINGS` in a module of a task's room; None stands for an option that is not given.

    Args:
        row: the task of the model.
        module: ``predictor`` or ``evaluate``.
        options: by name.
        model: what errors name.
        usual: the settings of a room without such a module.

    Raises:
        ConfigError: an option has a wrong value, or no task has it, or another one.
        ModelFileError: it is another task's alone, and a model of that task would take the same items.
    """
    given = {name: value for name, value in options.items() if value is not None}
    own = settings_of(row, module, usual)
    for name in given:
        if name not in own.model_fields:
            raise _refused(name, row, module, own, model)
    return own.read(given)


def settings_of(row: TaskRow, module: RoomModule, usual: type[Options] = Options) -> type[Options]:
    """Return the `SETTINGS` in a module of a task's room, or the ``usual`` ones of a room without such a module."""
    settings: type[Options] = getattr(row.module(module), "SETTINGS", usual) if row.has(module) else usual
    return settings


def _refused(name: str, row: TaskRow, module: RoomModule, own: type[Options], model: object) -> VitrailError:
    known = {other.name: settings_of(other, module) for other in TASKS.values()}
    owners = [other for other in known if name in known[other].model_fields]
    if not owners:
        return unknown("option", name, sorted({field for one in known.values() for field in one.model_fields}), where=name)
    missing = known[owners[0]].missing(model if isinstance(model, str | Path) else "model") if len(owners) == 1 else None
    if missing is not None and TASKS[owners[0]].reads == row.reads:
        return missing
    what = missing.what if missing is not None else own.refusal or f"{name} is an option of another task"
    return ConfigError(what, where=flag(name), hint="leave it out")


def flag(option: str) -> str:
    """Return the name of an option on the command line."""
    return {"table": "--csv", "fold": "--fold-normalization"}.get(option, f"--{option.replace('_', '-')}")
