"""What a run needs before its first step: settings, with a precision and a batch size where the machine decides."""

from pathlib import Path
from typing import Any

from vitrail.data.items import Data
from vitrail.data.images.transform import Transform
from vitrail.errors import ConfigError
from vitrail.models.inference import quickest_precision
from vitrail.models.registry import build
from vitrail.runtime.device import pick_device
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.tasks.teachers import AnyTeacher, told
from vitrail.training.loop.batch_size import largest_batch_size
from vitrail.config.configuration import Values
from vitrail.training.data_kinds import inputs_for, inputs_of
from vitrail.config.request import Request
from vitrail.training.runs.run_folder import RunFolder
from vitrail.config.settings import RunSettings
from vitrail.training.loop.trainer import Trainer
from vitrail.tasks.captioning.weights import TrainedCaptioner
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model


def resolve_run(recipe: str | None, config: Path | None, settings: Values) -> tuple[RunSettings, Any]:
    """The complete settings of a run, and the model it starts from, if it does."""
    asked = Request.read(recipe, config, settings)
    if asked.start is None:
        return asked.settings(), None
    start = inputs_for(asked.task).open_start(asked.start)
    resolved = asked.settings(start.model.config)
    if isinstance(start, TrainedModel | TrainedCaptioner):
        resolved = resolved.changed(preparation=start.preparation)
    return resolved, start


def require_transform(settings: RunSettings, transform: Transform | None) -> None:
    """A run whose settings speak of a transform needs it, and one that was started without it cannot take one up."""
    if bool(settings.transform) != (transform is not None):
        raise ConfigError(
            f"the run was started with the transform {settings.transform}" if settings.transform else "the run has no transform",
            where="transform",
            hint="give in Python what the run was started with: vitrail.resume(RUN, transform=…), or leave it out",
        )


def teacher_settings(teacher: str | Path | AnyTeacher | None) -> Values:
    """What settings can say of a teacher: where it is, or of one that was given in Python a few words."""
    if teacher is None:
        return {}
    return {"teacher": str(teacher)} if isinstance(teacher, str | Path) else {"distillation.given": told(teacher)}


def require_teacher(settings: RunSettings, given: AnyTeacher | None) -> None:
    """A run whose settings speak of a teacher that was given in Python needs that one, and no other."""
    expected, found = settings.distillation.given, "" if given is None else told(given)
    if expected and settings.distillation.teacher is not None:
        raise ConfigError("there are two teachers", where="--teacher", hint="give one of them")
    if expected != found:
        begun = f"a teacher that was given in Python: {expected}" if expected else "no teacher that was given in Python"
        raise ConfigError(
            f"the run has {begun}",
            where="teacher",
            hint="give in Python what the run was started with: vitrail.resume(RUN, teacher=…), or leave it out",
        )


def open_teacher(settings: RunSettings, given: AnyTeacher | None) -> AnyTeacher | None:
    reference = settings.distillation.teacher
    return given if reference is None else open_model(reference)


def with_precision(settings: RunSettings, observer: Observer, group: Processes) -> RunSettings:
    """The settings with one precision for all processes, where the machine decides."""
    t = settings.training
    device = pick_device(t.device)
    quickest = quickest_precision(device)
    if t.precision == "auto":
        chosen = group.broadcast(quickest)
        observer.note(f"precision {chosen}, the quicker one here")
        return settings.changed(training=t.changed(precision=chosen))
    if device.type == "cpu" and t.precision == "bf16" != quickest:
        observer.note("warning: this processor is slower in bf16, often several times; --precision fp32 or auto is quicker")
    return settings


def with_batch_size(
    settings: RunSettings, source: Data, teacher: AnyTeacher | None, observer: Observer, group: Processes
) -> RunSettings:
    """The settings with a number for the batch size, which each process finds for its share of the batch."""
    if settings.training.batch_size != "auto":
        return settings
    preparation, nowhere = inputs_of(settings).preparation_of(settings, source), RunFolder(Path(), writes=False)

    def with_batch(size: int) -> RunSettings:
        return settings.changed(training=settings.training.changed(batch_size=size))

    def make(size: int) -> Trainer:
        return Trainer(with_batch(size), build(settings.model.config), preparation, source, nowhere, teacher=teacher)

    with group.together():
        most, device = -(-len(source.split("train")) // group.count), pick_device(settings.training.device)
        share = largest_batch_size(make, most, device, on_message=observer.note)
    (smallest,) = group.all_reduce_max(-share)
    observer.note(f"batch size {-smallest * group.count}")
    return with_batch(-smallest * group.count)
