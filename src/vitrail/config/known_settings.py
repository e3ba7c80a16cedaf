"""The names of all settings that exist."""

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args

from vitrail.config.settings import ModelSettings, RunSettings, model_settings
from vitrail.errors import ConfigError, nearest, unknown
from vitrail.models.registry import ARCHITECTURES, named
from vitrail.settings import Settings
from vitrail.task_registry import TASKS
from vitrail.tasks.settings import TaskSettings


def fields_of(model: str) -> set[str]:
    """Return the names of the settings of a model; raises `ConfigError` for an unknown model name."""
    return set(model_settings(named(model)[0].name).model_fields)


def check_names(values: Mapping[str, Any], *, path: str = "", settings: type[Settings] = RunSettings) -> None:
    """Raise `ConfigError` for a setting that does not exist; the hint names the most similar one that does.

    ``path`` is the prefix of the dotted names, with its dot.
    """
    for name, value in values.items():
        dotted = f"{path}{name}"
        fields = _fields(settings)
        if name not in fields:
            known = _leaves() if settings is RunSettings else {field: field for field in fields}
            error = unknown("setting", name, list(known), where=dotted)
            close = nearest(name, list(known))
            raise ConfigError(error.what, where=dotted, hint=f"did you mean {known[close]!r}?" if close else error.hint)
        kind = None if name not in settings.model_fields else settings.model_fields[name].annotation
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Settings):
            check_names(value, path=f"{dotted}.", settings=kind)


def _fields(settings: type[Settings]) -> list[str]:
    """Return the names of a section's settings; for the sections model and task, of all architectures or tasks."""
    return list(dict.fromkeys(field for kind in _kinds(settings) for field in kind.model_fields))


def _kinds(settings: type[Settings]) -> Sequence[type[Settings]]:
    """Return the settings classes of a section; the sections model and task have one for each architecture or task."""
    if settings is ModelSettings:
        return [model_settings(name) for name in ARCHITECTURES]
    return [row.settings for row in TASKS.values()] if settings is TaskSettings else [settings]


def takes_words(dotted: str) -> bool:
    """Return whether a setting is free text, so that ``007`` and ``no`` are read as text and not as number and boolean."""
    section, _, name = dotted.rpartition(".")
    inside: Any = RunSettings.model_fields[section].annotation if section in RunSettings.model_fields else None
    kinds = _kinds(inside) if isinstance(inside, type) and issubclass(inside, Settings) else [] if section else [RunSettings]
    fields = [kind.model_fields[name].annotation for kind in kinds if name in kind.model_fields]
    parts = [part for field in fields for part in get_args(field) or (field,)]
    return bool(fields) and all(part in (str, NoneType) for part in parts)


def _leaves() -> dict[str, str]:
    """Return the dotted name of every setting by its last part; sections are included by their name."""
    leaves = {name: name for name in RunSettings.model_fields}
    for section, field in RunSettings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            leaves |= {name: f"{section}.{name}" for name in _fields(field.annotation) if name not in leaves}
    return leaves
