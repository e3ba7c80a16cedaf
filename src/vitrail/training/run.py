"""A run from what somebody asks for to its report: begun, or gone on with. Who evaluates and who reports is handed in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vitrail.data.copies import leak_warning
from vitrail.data.sources import ImageData, Item, open_data
from vitrail.data.transform import Transform
from vitrail.errors import DataError
from vitrail.files import path_of
from vitrail.models.cost import cost
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import default_folder, require_free
from vitrail.runtime.processes import Processes, open_processes
from vitrail.runtime.signals import InterruptedRunError, remembered_signals
from vitrail.tasks.evaluation import Evaluation
from vitrail.training.checkpoint import checkpoints
from vitrail.training.loop import Trainer
from vitrail.training.preparing import (
    check_images,
    complete,
    open_teacher,
    preparation_of,
    require_transform,
    resolve_run,
    start_model,
    used,
    with_batch_size,
)
from vitrail.training.resuming import require_same_settings
from vitrail.training.run_folder import RunFolder
from vitrail.training.settings import RunSettings, Values, check_names, merge
from vitrail.weights.folder import TrainedModel
from vitrail.weights.reference import load_model, open_model


@dataclass(frozen=True)
class Finished:
    """What a run came to."""

    trainer: Trainer
    trained: TrainedModel
    """The best model."""
    split: str
    """What it is reported on."""
    items: list[Item]
    """The images of that split."""
    result: Evaluation
    """What the model says of them."""
    validation: Evaluation | None
    """And of the validation images, where images may have several labels."""


@dataclass(frozen=True)
class Ending:
    """What is done with the best model of a run."""

    evaluator: Callable[[TrainedModel, torch.device], Callable[..., Evaluation]]
    """Makes of a model what evaluates items, as `vitrail.deploy.predictor.Predictor.evaluate` does."""
    report: Callable[[Finished], None]
    """Writes the report; asked by one process."""


def begin_run(
    out: str | Path | None,
    ending: Ending,
    settings: Values,
    *,
    recipe: str | None,
    config: str | Path | None,
    observer: Observer | None,
    transform: Transform | None,
) -> Finished:
    """Train a model and write its run folder; see `vitrail.train`."""
    observer = observer or Observer()
    resolved, start = resolve_run(recipe, path_of(config) if config else None, settings)
    with open_processes() as group:
        with group.together():
            folder = group.broadcast(path_of(out) if out is not None else default_folder(resolved.results, resolved.data.source))
            require_free(folder)
            teacher = open_teacher(resolved)
            source = open_data(resolved.data.source, split_seed=resolved.data.split_seed)
            resolved = complete(resolved, source, start)
            if transform is not None:
                resolved = resolved.changed(transform=repr(transform)[:1000])
            require_transform(resolved, transform)
        bad = check_images(source, resolved, observer, group)
        source = used(source, bad, resolved)
        resolved = with_batch_size(resolved, source, teacher, observer, group)
        with remembered_signals() as signals:
            group.all_reduce_max(0)  # each hears signals before there is anything to lose
            run = _create(folder, resolved, source, bad, group)
            with run.at_work(signals, group):
                if group.first and (warning := leak_warning(source)):
                    run.log(warning)
                    observer.note(warning)
                trainer = _trainer(
                    resolved, start, source, run, transform=transform, teacher=teacher, group=group, signals=signals
                )
                if trainer.epochs > resolved.training.epochs:
                    run.log(f"{trainer.epochs} epochs make the {resolved.training.min_steps} steps of training.min_steps")
                return _finish(trainer, ending, observer)


def resume_run(
    folder: str | Path, ending: Ending, settings: Values, *, observer: Observer | None, transform: Transform | None
) -> Finished:
    """Continue an interrupted run; see `vitrail.resume`."""
    run = RunFolder.open(path_of(folder))
    begun, observer = run.settings, observer or Observer()
    check_names(settings)
    resolved = RunSettings.read(merge(begun.model_dump(mode="json"), settings))
    require_same_settings(begun, resolved)
    require_transform(resolved, transform)
    with open_processes() as group, remembered_signals() as signals:
        run.writes = group.first
        with run.at_work(signals, group):
            with group.together():
                run.recover()
                source = open_data(resolved.data.source, split_seed=resolved.data.split_seed, assignment=run.assignment)
                if len(source.classes) != resolved.model.num_classes:
                    raise DataError(
                        f"the data has {len(source.classes)} classes, the run was started with {resolved.model.num_classes}",
                        where=resolved.data.source,
                        hint="bring the data back as it was, or train anew",
                    )
                source = used(source, run.bad_images, resolved)
                teacher, start = open_teacher(resolved), None
                if resolved.start is not None and not checkpoints(run.path):
                    start = open_model(resolved.start)
            trainer = _trainer(resolved, start, source, run, transform=transform, teacher=teacher, group=group, signals=signals)
            trainer.restore(observer)
            return _finish(trainer, ending, observer)


def _trainer(settings: RunSettings, start: TrainedModel | None, source: ImageData, run: RunFolder, **others: Any) -> Trainer:
    torch.manual_seed(settings.training.seed)
    return Trainer(settings, start_model(settings, start, source.classes), preparation_of(settings), source, run, **others)


def _create(folder: Path, settings: RunSettings, source: ImageData, bad: dict[str, str], group: Processes) -> RunFolder:
    """The run folder, which the first process makes."""
    with group.together():
        if not group.first:
            return RunFolder(folder, writes=False)
        texts = {"model_summary.txt": cost(settings.model.config).to_text(settings.model.name) + "\n"}
        run = RunFolder.create(folder, settings, source.assignment, bad, **texts)
        images = ", ".join(f"{split} {len(items)}" for split, items in source.splits.items())
        run.log(f"{settings.model.name} on {settings.data.source}: {images}")
        if not source.splits["val"]:
            run.log("no validation images: the training images stand in for them")
        return run


def _finish(trainer: Trainer, ending: Ending, observer: Observer) -> Finished:
    """Train to the end, then report on the best model."""
    trainer.run(observer)
    group, source = trainer.group, trainer.data
    group.all_reduce_max(0)  # the first process has written the model before any other reads it
    trained, split = load_model(trainer.folder.path / "best"), source.evaluation_split
    evaluate = ending.evaluator(trained, trainer.device)

    def on_batch(images: int) -> None:
        observer.advance(images)
        (number,) = group.all_reduce_max(trainer.signals.received)
        if number:
            trainer.stop(number)

    def look(name: str, items: list[Item]) -> Evaluation:
        """The model's answers to some images, unless a signal comes."""
        observer.begin(f"evaluating {name}", len(items))
        size, workers = trainer.settings.training.batch, trainer.settings.data.workers
        return evaluate(items, batch_size=size, workers=workers, on_batch=on_batch, group=group)

    items = trainer.few(source.split(split))
    result = look(split, items)
    validation = look("val", trainer.validation) if source.multi_label else None
    finished = Finished(trainer, trained, split, items, result, validation)
    if group.first:
        ending.report(finished)
    trainer.finish(split=split, scores=result.scores())
    (number,) = group.all_reduce_max(trainer.signals.received)
    if number:
        what = "finished before it could be stopped"
        raise InterruptedRunError(number, trainer.folder.path, f"vitrail evaluate {trainer.folder.path}", what=what)
    return finished
