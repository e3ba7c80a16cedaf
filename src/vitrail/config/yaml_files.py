"""Reading and writing of settings as YAML."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from vitrail.config.configuration import Values
from vitrail.config.settings import RunSettings
from vitrail.errors import ConfigError
from vitrail.files import read_text
from vitrail.plain_yaml import value_of
from vitrail.settings import brief

MOST_BYTES = 2**18
"""Largest size of a configuration file; all settings of a run are a few thousand bytes."""


def _require_once(node: yaml.Node, file: Path) -> None:
    """Raise `ConfigError` for a key that appears twice in a section; YAML would silently take the last one."""
    seen: set[str] = set()
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            where = f"{file}, line {key.start_mark.line + 1}"
            raise ConfigError(f"the key {brief(key.value)} appears twice", where=where, hint="write it once")
        seen.add(key.value)


def read_yaml(file: Path) -> Values:
    """Return the settings in a configuration file; raises `ConfigError` if it is missing or not a mapping."""
    try:
        values = value_of(read_text(file, MOST_BYTES), where=file, check=partial(_require_once, file=file))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", where=file, hint="check the path") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{file}, line {line + 1}" if line is not None else file
        raise ConfigError("the configuration is not valid YAML", where=where, hint="correct the file") from None
    if not isinstance(values, dict):
        raise ConfigError("the configuration holds no settings", where=file, hint="write `section:` and `  key: value` lines")
    _require_names(values, file)
    return values


def _require_names(values: Mapping[Any, Any], file: Path) -> None:
    for name, value in values.items():
        if not isinstance(name, str):
            raise ConfigError(f"the setting {name!r} is no name", where=file, hint="write `name: value` lines")
        if isinstance(value, Mapping):
            _require_names(value, file)


def to_yaml(settings: RunSettings) -> str:
    """Return the complete settings as YAML; `read_yaml` and ``--config`` read it."""
    values = settings.model_dump(mode="json")
    values["model"] = {"name": settings.model.name, **values["model"]}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def differences(settings: RunSettings) -> str:
    """Return the settings that concern training and differ from their defaults, as YAML."""
    sections = {"task", "about", "augmentation", "optimizer", "lora", "distillation", "schedule", "training"}
    values = settings.model_dump(mode="json", include=sections, exclude_defaults=True)
    return yaml.safe_dump({name: value for name, value in values.items() if value}, sort_keys=False, allow_unicode=True)
