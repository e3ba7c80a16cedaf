"""The task of a run."""

from typing import Any

from vitrail.data.items import Data
from vitrail.models.base import Model
from vitrail.tasks.registry import task_class
from vitrail.tasks.task import Options, Task
from vitrail.tasks.teachers import AnyTeacher
from vitrail.config.settings import RunSettings


def create_task(settings: RunSettings, model: Model, preparation: Any, data: Data, teacher: AnyTeacher | None = None) -> Task:
    """What a run learns, and with what model; raises `ConfigError` where settings, model or data do not fit together."""
    options = Options(
        settings.task,
        settings.distillation,
        label_smoothing=settings.training.label_smoothing,
        balance=settings.data.balance,
        tune=settings.training.tune,
        teacher=teacher,
    )
    kind = task_class(settings.task.name, multi_label=data.multi_label, teacher=teacher is not None)
    return kind.create(model, preparation, data, options)
