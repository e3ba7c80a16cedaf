"""Recipes: YAML files of settings, each with its expected result, cost and machine."""

from importlib.resources import files
from typing import Any

import yaml

from vitrail.errors import unknown
from vitrail.task_registry import task_row


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(f.name.removesuffix(".yaml") for f in files(__name__).iterdir() if f.name.endswith(".yaml"))


def recipe_text(name: str, *, where: str = "--recipe") -> str:
    """Return the text of a recipe, with its comments. ``where`` is the flag that an error for an unknown name shows."""
    if name not in recipe_names():
        raise unknown("recipe", name, recipe_names(), where=where)
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")


def read_recipe(name: str) -> dict[str, Any]:
    """Return a recipe's settings."""
    values: dict[str, Any] = yaml.safe_load(recipe_text(name))
    return values


def default_recipe(source: str | None, *, start: str | None = None, task: str | None = None) -> str:
    """Return the name of the default recipe: the task's, for this data if there is one, else ``finetune`` with a start.

    Without a task and a model to start from, the data decides.
    """
    if task is not None and (recipe := task_row(task).recipe):
        own = f"{recipe}-{source}"
        return own if start is None and own in recipe_names() else recipe
    if start is not None:
        return "finetune"
    if str(source).startswith("cifar10:"):
        return "cifar10"
    return "digits" if source == "digits" else "scratch"
