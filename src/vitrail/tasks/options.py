"""The options of a task for prediction and evaluation, and errors for options of other tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from vitrail.errors import ConfigError, ModelFileError, VitrailError, unknown
from vitrail.files import path_of
from vitrail.settings import Settings
from vitrail.task_registry import TASKS, RoomModule, TaskRow

OptionPath = Annotated[Path, BeforeValidator(path_of)]
"""A path, which may be given as text."""


class Options(Settings):
    """Options of a task, with their defaults."""

    refusal: ClassVar[str] = ""
    """Error message for an option that models of other tasks take and models of this task do not."""

    @classmethod
    def missing(cls, where: object) -> ModelFileError | None:
        """Return the error for an option of this task only, if it is given for a model of another task; None by default."""
        return None


def read_options(
    row: TaskRow, module: RoomModule, options: Mapping[str, Any], model: object, usual: type[Options] = Options
) -> Any:
    """Validate options by the class `SETTINGS` in a module of a task's room; None stands for an option that is not given.

    Args:
        row: the task of the model.
        module: ``predictor`` or ``evaluate``.
        options: the values by name.
        model: the model, for errors.
        usual: the options class for a room without this module.

    Raises:
        ConfigError: an option has a wrong value, does not exist, or belongs to another task.
        ModelFileError: an option belongs to a task of the same input, whose models are needed for it.
    """
    given = {name: value for name, value in options.items() if value is not None}
    own = settings_of(row, module, usual)
    for name in given:
        if name not in own.model_fields:
            raise _refused(name, row, module, own, model)
    return own.read(given)


def settings_of(row: TaskRow, module: RoomModule, usual: type[Options] = Options) -> type[Options]:
    """Return the class `SETTINGS` in a module of a task's room, or ``usual`` if the room has no such module."""
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
    """Return the command-line flag of an option."""
    return {"table": "--csv", "fold": "--fold-normalization"}.get(option, f"--{option.replace('_', '-')}")
