"""Settings of a run on ordered classes. Imports no torch."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from vitrail.tasks.settings import TaskSettings


def names(value: Any) -> Any:
    """Split ``low,medium,high``, as the command line gives it, into its names."""
    return tuple(value.split(",")) if isinstance(value, str) else value


class OrdinalSettings(TaskSettings):
    """Classes that have an order, such as grades or ages."""

    name: str = "ordinal"
    order: Annotated[tuple[str, ...], BeforeValidator(names)] = ()
    """All classes from the lowest to the highest: ``--task.order low,medium,high``. By default they stand in the natural order of
    their names, 2 before 10."""


SETTINGS = OrdinalSettings
