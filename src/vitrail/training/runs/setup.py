"""Planning of a run: settings, data, and choices that depend on the machine, before anything is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitrail.config.configuration import Values
from vitrail.config.request import Request, require_data_of
from vitrail.config.settings import RunSettings
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.errors import ConfigError
from vitrail.models.inference import quickest_precision
from vitrail.models.registry import build
from vitrail.runtime.device import pick_device
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import default_folder, require_free
from vitrail.runtime.processes import Processes
from vitrail.tasks.teachers import AnyTeacher, described_teacher
from vitrail.training.loop.batch_size import largest_batch_size
from vitrail.training.loop.memory_check import require_memory
from vitrail.training.loop.trainer import Trainer
from vitrail.training.run_data import run_data, run_data_of
from vitrail.training.runs.checkpoint import has_checkpoint
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.plan import RunPlan
from vitrail.training.runs.resuming import settings_to_resume
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.runs.tracking import require_tracker
from vitrail.weights.reference import open_model

AGAIN = "pass the same as when the run was started: vitrail.resume(RUN, {}=…), or nothing if there was none"


def resolve_run(recipe: str | None, config: Path | None, settings: Values) -> tuple[RunSettings, Any]:
    """Return the requested settings of a run, and the model to start from, or None."""
    request = Request.read(recipe, config, settings)
    if request.start is None:
        return request.settings(), None
    start = run_data(request.task).open_start(request.start)
    resolved, preparation = request.settings(start.model.config), start.preparation
    if isinstance(preparation, Preparation | BoxPreparation):  # a text model has tokens instead
        return resolved.changed(preparation=preparation), start
    return resolved, start


def plan_run(
    out: Path | None,
    asked: RunSettings,
    start: Any,
    *,
    transform: Transform | None,
    teacher: AnyTeacher | None,
    observer: Observer,
    group: Processes,
) -> RunPlan:
    """Plan a new run, from the requested settings and the model to start from; see `resolve_run`.

    Raises:
        VitrailError: settings, data and machine do not fit together; nothing is written yet.
    """
    require_teacher(asked, teacher)
    kind = run_data_of(asked)
    with group.together():
        folder = group.broadcast(out if out is not None else default_folder(asked.results, asked.data.source))
        require_free(folder)
        require_tracker(asked.training.track if group.first else "none")
        opened_teacher = open_teacher(asked, teacher)
        source = kind.open_source(asked, start=start)
        completed = kind.complete(asked, source, start)
        named = completed if transform is None else completed.changed(transform=repr(transform)[:1000])
        require_transform(named, transform)
    source.tell(observer.note)
    if advice := kind.advice(named, source):
        observer.note(advice)
    bad = kind.check(source, named, observer, group)
    data = kind.used(source, bad, named)
    settled = with_precision(named, observer, group)
    with group.together():
        require_memory(settled, group.count, images=len(data.splits["train"]))
    preparation = kind.preparation_of(settled, data)

    def trainer_with(settings: RunSettings) -> Trainer:
        task = create_task(settings, build(settings.model.config), preparation, data, opened_teacher)
        return Trainer(settings, task, data, RunFolder(Path(), writes=False))

    final = with_batch_size(settled, trainer_with, len(data.split("train")), observer, group)
    return RunPlan(folder, final, data, bad, preparation, start, opened_teacher, transform)


def plan_resumed(
    run: RunFolder,
    settings: Values,
    *,
    transform: Transform | None,
    teacher: AnyTeacher | None,
    observer: Observer,
    group: Processes,
) -> RunPlan:
    """Plan how a run continues, from its own settings and those that override them.

    Raises:
        VitrailError: the run cannot continue with these settings or this data; nothing is written yet.
    """
    with group.together():
        asked = settings_to_resume(run, settings)
        require_transform(asked, transform)
        require_teacher(asked, teacher)
        require_data_of(run.path, settings)
        require_tracker(asked.training.track if group.first else "none")
        kind, bad = run_data_of(asked), run.bad_images
        source = kind.open_source(asked, run=run)
        data = kind.used(source, bad, asked)
        require_memory(asked, group.count, images=len(data.splits["train"]))
        source.tell(observer.note)
        final = asked.changed(data=asked.data.changed(source=source.source))
        opened_teacher, start = open_teacher(final, teacher), None
        if final.start is not None and not has_checkpoint(run.path):
            start = kind.open_start(final.start)
        preparation = kind.preparation_of(final, data)
    return RunPlan(run.path, final, data, bad, preparation, start, opened_teacher, transform)


def require_transform(settings: RunSettings, transform: Transform | None) -> None:
    """Raise `ConfigError` unless a transform is passed if and only if the settings name one."""
    if bool(settings.transform) != (transform is not None):
        begun = f"was started with the transform {settings.transform}" if settings.transform else "has no transform"
        raise ConfigError(f"the run {begun}", where="transform", hint=AGAIN.format("transform"))


def teacher_settings(teacher: str | Path | AnyTeacher | None) -> Values:
    """Return the settings for a teacher: its path, or a description of one that is passed as a Python object."""
    if teacher is None:
        return {}
    return {"teacher": str(teacher)} if isinstance(teacher, str | Path) else {"distillation.given": described_teacher(teacher)}


def require_teacher(settings: RunSettings, given: AnyTeacher | None) -> None:
    """Raise `ConfigError` unless the teacher passed as a Python object is the one that the settings describe."""
    expected, passed = settings.distillation.given, "" if given is None else described_teacher(given)
    if expected and settings.distillation.teacher is not None:
        raise ConfigError("two teachers are given", where="--teacher", hint="give one of them")
    if expected != passed:
        begun = f"a teacher passed in Python: {expected}" if expected else "no teacher passed in Python"
        raise ConfigError(f"the run has {begun}", where="teacher", hint=AGAIN.format("teacher"))


def open_teacher(settings: RunSettings, given: AnyTeacher | None) -> AnyTeacher | None:
    """Load the teacher that the settings name, or return the one that is passed."""
    reference = settings.distillation.teacher
    return given if reference is None else open_model(reference)


def with_precision(settings: RunSettings, observer: Observer, group: Processes) -> RunSettings:
    """Return the settings with the precision "auto" replaced by this machine's faster one, the same in all processes."""
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
    settings: RunSettings, trainer_with: Callable[[RunSettings], Trainer], items: int, observer: Observer, group: Processes
) -> RunSettings:
    """Return the settings with the batch size "auto" replaced by a number, found by trials in each process.

    ``trainer_with`` creates a trainer for other settings, used for a trial only; ``items`` is the number of training items.
    """
    if settings.training.batch_size != "auto":
        return settings

    def with_batch(size: int) -> RunSettings:
        return settings.changed(training=settings.training.changed(batch_size=size))

    with group.together():
        most, device = -(-items // group.count), pick_device(settings.training.device)
        share = largest_batch_size(lambda size: trainer_with(with_batch(size)), most, device, on_message=observer.note)
    (smallest,) = group.all_reduce_max(-share)
    observer.note(f"batch size {-smallest * group.count}")
    return with_batch(-smallest * group.count)
