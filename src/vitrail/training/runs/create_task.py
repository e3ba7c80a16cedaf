"""Creation of a run's task."""

from typing import Any

from vitrail.config.settings import RunSettings
from vitrail.data.items import Data
from vitrail.models.base import Model
from vitrail.task_registry import task_row
from vitrail.tasks.task import Options, Task
from vitrail.tasks.teachers import AnyTeacher


def create_task(settings: RunSettings, model: Model, preparation: Any, data: Data, teacher: AnyTeacher | None = None) -> Task:
    """Create the task of a run; raises `ConfigError` if settings, model and data do not fit together."""
    options = Options(
        settings.task,
        settings.distillation,
        label_smoothing=settings.training.label_smoothing,
        balance=settings.data.balance,
        tune=settings.training.tune,
        teacher=teacher,
    )
    task: Task = task_row(settings.task.name).module("task").create(model, preparation, data, options)
    task.follow_schedule(settings.schedule)
    return task
