"""Recipes: settings as data, each with its expected result, cost and machine beside it."""

from importlib.resources import files
from typing import Any

import yaml

from vitrail.errors import unknown
from vitrail.task_registry import task_row


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(f.name.removesuffix(".yaml") for f in files(__name__).iterdir() if f.name.endswith(".yaml"))


def recipe_text(name: str, *, where: str = "--recipe") -> str:
    """Return a recipe as it is written, comments included; errors name ``where`` its name was given."""
    if name not in recipe_names():
        raise unknown("recipe", name, recipe_names(), where=where)
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")


def read_recipe(name: str) -> dict[str, Any]:
    """Return a recipe's settings."""
    values: dict[str, Any] = yaml.safe_load(recipe_text(name))
    return values


def default_recipe(source: str | None, *, start: str | None = None, task: str | None = None) -> str:
    """Return the recipe of a run that names none: by its task (and data, where there is one for both), start or data."""
    if task is not None and (recipe := task_row(task).recipe):
        own = f"{recipe}-{source}"
        return own if start is None and own in recipe_names() else recipe
    if start is not None:
        return "finetune"
    if str(source).startswith("cifar10:"):
        return "cifar10"
    return "digits" if source == "digits" else "scratch"
