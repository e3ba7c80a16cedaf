"""A run from settings to report, new or resumed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitrail.config.configuration import Values
from vitrail.config.settings import RunSettings
from vitrail.data.images.transform import Transform
from vitrail.data.items import Data
from vitrail.files import path_of
from vitrail.models.cost import cost
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes, open_processes
from vitrail.runtime.signals import InterruptedRunError, remembered_signals
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.floor import Floor, deciding_metric, is_no_better
from vitrail.tasks.task import Metrics, Task
from vitrail.tasks.teachers import AnyTeacher
from vitrail.training.finetune.adapters import target_layers
from vitrail.training.finetune.freezing import require_nothing_fresh
from vitrail.training.loop.best_model import BESIDE
from vitrail.training.loop.clock import Clock, round_limit, shown_seconds
from vitrail.training.loop.learner import require_possible
from vitrail.training.loop.time_budget import TRIAL
from vitrail.training.loop.trainer import Trainer
from vitrail.training.run_data import run_data_of
from vitrail.training.runs.checkpoint import checkpoints
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.plan import RunPlan, Work
from vitrail.training.runs.run_folder import RunFolder, begun_by
from vitrail.training.runs.setup import plan_resumed, plan_run, resolve_run
from vitrail.weights.formats.tensor_files import read_tensors
from vitrail.weights.locate import require_best
from vitrail.weights.model_folder.folder import TrainedModel, keep_thresholds
from vitrail.weights.model_folder.trained import fill

STOPPING = "stopping after this step; a second time stops at once"


@dataclass(frozen=True)
class Finished:
    """Result of a run."""

    trainer: Trainer
    trained: TrainedModel
    """The best model."""
    task: Task
    """The task with the best model and its other trained parts."""
    split: str
    items: list[Any]
    """The items of the split that the metrics are computed on."""
    metrics: Metrics
    """Metrics of the best model on these items."""
    validation: Metrics | None
    """Metrics on the validation items, if the task chooses thresholds or the like by them; else None."""
    floor: Floor | None = None
    """Scores of a constant prediction for all items."""
    doubts: list[str] = field(default_factory=list)
    """Reasons why the model has hardly learned anything, one sentence each."""

    @property
    def longer(self) -> str:
        """The command that trains for longer; empty if there are no doubts, or if only a head was fitted."""
        trainer = self.trainer
        if not self.doubts or not trainer.epochs:
            return ""
        epochs = trainer.epochs if trainer.epoch < trainer.epochs else 2 * trainer.epochs
        limit = "" if trainer.clock.limit is None else f" --training.time-limit {_enough(trainer)}"
        return f"{trainer.folder.resume_command} --epochs {epochs}{limit}"


Report = Callable[[Finished], None]
"""Writes the report of a run; only one process calls it."""


def begin_run(
    out: str | Path | None,
    report: Report,
    settings: Values,
    *,
    recipe: str | None,
    config: str | Path | None,
    observer: Observer | None,
    transform: Transform | None,
    teacher: AnyTeacher | None = None,
) -> Finished:
    """Train a model and write its run folder; see `vitrail.train` for the arguments."""
    observer = observer or Observer()
    clock = Clock(None, begun=observer.command_began)
    resolved, start = resolve_run(recipe, path_of(config) if config else None, settings)
    with open_processes() as group:
        place = None if out is None else path_of(out)
        plan = plan_run(place, resolved, start, transform=transform, teacher=teacher, observer=observer, group=group)
        final = plan.settings
        with remembered_signals(lambda: observer.note(STOPPING)) as signals:
            group.all_reduce_max(0)  # every process handles signals before there is anything to lose
            run = _create(plan, group)
            with run.at_work(signals, group):
                plan.data.tell(run.log)
                for warning in run_data_of(final).warnings(final, plan.data) if group.first else ():
                    run.tell(warning, observer)
                clock.limit = final.training.time_limit
                trainer = _trainer(plan, Work(run, observer, group, signals, clock))
                if trainer.epochs > final.training.epochs:
                    run.log(f"{trainer.epochs} epochs make the {final.training.min_steps} steps of training.min_steps")
                return _finish(trainer, report, observer)


def resume_run(
    folder: str | Path,
    report: Report,
    settings: Values,
    *,
    observer: Observer | None,
    transform: Transform | None,
    teacher: AnyTeacher | None = None,
) -> Finished:
    """Continue an interrupted run; see `vitrail.resume` for the arguments."""
    run = RunFolder.open(path_of(folder))
    begun, observer = run.settings, observer or Observer()
    clock = Clock(None, begun=observer.command_began)
    with open_processes() as group, remembered_signals(lambda: observer.note(STOPPING)) as signals:
        plan = plan_resumed(run, settings, transform=transform, teacher=teacher, observer=observer, group=group)
        run.writes = group.first
        with run.at_work(signals, group):
            with group.together():
                run.recover()
            clock.limit = plan.settings.training.time_limit
            trainer = _trainer(plan, Work(run, observer, group, signals, clock))
            trainer.restore(observer)
            if plan.settings.schedule.extended_at != begun.schedule.extended_at:
                run.extend(plan.settings)  # only after everything was opened: until then the run counts as finished
            elif (plan.data.source, plan.settings.task) != (begun.data.source, begun.task):
                run.move(plan.data.source, plan.settings.task)
            return _finish(trainer, report, observer)


def finished_run(run: RunFolder) -> tuple[Path, TrainedModel, str, dict[str, float | int]] | None:
    """Return the folder, best model, reported split and scores of a finished run; None for an unfinished run."""
    status = run.standing
    if status["state"] != "finished":
        return None
    return run.path, _best(run, run.settings), status["split"], status["scores"]


def _trainer(plan: RunPlan, work: Work) -> Trainer:
    """Build the model and its trainer; a run without a checkpoint first gets its first model, if its data has one."""
    settings, start, kind = plan.settings, plan.start, run_data_of(plan.settings)
    torch.manual_seed(settings.training.seed)
    model = kind.start_model(settings, start, plan.data)
    if start is not None and (settings.training.tune != "all" or settings.training.frozen_share):
        require_nothing_fresh(model, start.model, settings)
    if settings.training.tune == "lora":
        target_layers(model, settings.lora)  # raises early, before anything takes time
    task = create_task(settings, model, plan.preparation, plan.data, plan.teacher)
    require_possible(settings, task, work.group)
    if start is not None and (run := begun_by(settings)):
        continue_parts(task, run, work)
    first = None if checkpoints(work.folder.path) else kind.begin(plan, task, work)
    return Trainer(
        settings, task, plan.data, work.folder, transform=plan.transform, first=first,
        group=work.group, signals=work.signals, clock=work.clock,
    )  # fmt: skip


def continue_parts(task: Task, run: RunFolder, work: Work) -> None:
    """Fill the parts beside the model, such as a decoder, from the run to start from; parts of other shapes stay new."""
    parts, file = parts_beside(task), run.path / "best" / BESIDE
    if not parts or not file.is_file():
        return
    tensors = read_tensors(file)
    for name, part in parts.items():
        known = {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}
        if fits := {key: t.shape for key, t in known.items()} == {key: t.shape for key, t in part.state_dict().items()}:
            part.load_state_dict(known)
        how = "continued from" if fits else "new, as it has another shape or is missing in"
        work.folder.tell(f"{name}: {how} {run.path}", work.observer)


def _create(plan: RunPlan, group: Processes) -> RunFolder:
    """Create the run folder, in the first process."""
    with group.together():
        if not group.first:
            return RunFolder(plan.folder, writes=False)
        settings, data = plan.settings, plan.data
        summary = cost(settings.model.config).to_text(settings.model.name) + "\n"
        files = {"model_summary.txt": summary.encode(), **run_data_of(settings).files(data)}
        run = RunFolder.create(plan.folder, settings, data.assignment, plan.bad, **files)
        counts = ", ".join(f"{split} {len(items)}" for split, items in data.splits.items())
        run.log(f"{settings.model.name} on {settings.data.source}: {counts}")
        if not data.splits["val"]:
            run.log(f"no validation {data.things}: the training {data.things} stand in for them")
        return run


def _finish(trainer: Trainer, report: Report, observer: Observer) -> Finished:
    """Train to the end, then report on the best model."""
    trainer.run(observer)
    group, source, folder = trainer.group, trainer.data, trainer.folder
    group.all_reduce_max(0)  # waits until the first process has written the model
    trained, task = best_task(folder, trainer.settings, source)
    task.to(trainer.device)
    split = source.evaluation_split
    validation = _evaluate(trainer, task, "val", trainer.validation, observer) if task.report_needs_validation else None
    if validation is not None:
        if remark := task.settle(validation):
            folder.tell(remark, observer)
        trained.thresholds = task.trained(trained.model).thresholds
        if group.first:
            keep_thresholds(folder.path / "best", trained.thresholds)
    if trainer.best is not None and trainer.best["epoch"] == 0:
        of = f" of {trainer.epochs}" if trainer.epochs else ""
        folder.tell(f"the model that is kept is epoch 0{of}: a head fitted to the model as it came", observer)
    items = _scored_items(trainer, observer)
    reused = split == "val" and len(items) == len(trainer.validation) and not task.settling_changes_scores
    metrics = validation if validation is not None and reused else _evaluate(trainer, task, split, items, observer)
    floor = task.floor(metrics, items, source.split("train"))
    finished = Finished(trainer, trained, task, split, items, metrics, validation, floor, _doubts(trainer, metrics, floor))
    for doubt in finished.doubts:
        folder.tell(f"warning: {doubt}", observer)
    if group.first:
        report(finished)
    doubts = {"warnings": finished.doubts} if finished.doubts else {}
    trainer.finish(split=split, scores=metrics.scores(), **doubts)
    folder.keep_newest_checkpoint()
    task.to("cpu")  # where users' images are
    if number := trainer.signal():
        what = "finished before it could be stopped"
        raise InterruptedRunError(number, folder.path, f"vitrail evaluate {folder.path}", what=what)
    return finished


def _evaluate(trainer: Trainer, task: Task, name: str, items: list[Any], observer: Observer) -> Metrics:
    """Return the metrics of the best model on ``items``; stops the run if a signal arrives."""

    def on_batch(images: int) -> None:
        observer.advance(images)
        if number := trainer.signal():
            trainer.stop(number)

    observer.begin(f"evaluating {name}", len(items))
    loader, metrics = trainer.loader(task.dataset(items)), task.metrics(keep=True)
    metrics.take_items(items)
    with kept_memory(), answering(task, trainer.device) as answer:
        return evaluate(answer, loader, metrics, on_batch=on_batch, group=trainer.group)


def _scored_items(trainer: Trainer, observer: Observer) -> list[Any]:
    """Return the items that the best model is scored on; with a time limit, as many as there is time for."""
    budget, every, group, tell = trainer.budget, trainer.budget.reported, trainer.group, trainer.folder.tell
    if trainer.clock.limit is None:
        return every
    if len(budget.scored(group.broadcast(trainer.clock.left))) < len(every):
        trainer.measure(TRIAL * trainer.clock.limit, reported=True)  # measured again before items are dropped
    items: list[Any] = budget.scored(group.broadcast(trainer.clock.left))
    time_of_all = shown_seconds(budget.scoring)
    if trainer.stopped_early:
        what = f"the time is up after {trainer.made_of_all}; scoring takes {time_of_all}"
        tell(f"{what}: give --time-limit {_enough(trainer)}", observer)
    if len(items) < len(every):
        what = f"{len(items):,} of {len(every):,} {trainer.data.evaluation_split} items, chosen at random, are scored"
        tell(f"{what}: all of them would take {time_of_all}", observer)
    return items


def _enough(trainer: Trainer) -> str:
    """Return a round time limit in which a run that stopped early would make all its steps."""
    budget, left = trainer.budget, trainer.total - trainer.done
    passes = (trainer.epochs - trainer.epoch + budget.passes) * len(budget.validated) * budget.validating
    seconds = trainer.clock.spent + left * trainer.step_seconds + passes + budget.scoring + budget.report
    return round_limit(seconds)


def _doubts(trainer: Trainer, metrics: Metrics, floor: Floor | None) -> list[str]:
    """Return reasons why the best model has hardly learned anything: too few batches, or no better than a constant prediction."""
    if trainer.settings.training.fast_dev_run:
        return []
    doubts = []
    if trainer.stopped_early:
        doubts.append(f"the model is hardly trained: the time was up after {trainer.made_of_all}")
    if floor is not None and is_no_better(metrics.scores(), floor.scores):
        metric = deciding_metric(metrics.scores(), floor.scores)
        own, theirs = (metric.shown(scores[metric.name]) for scores in (metrics.scores(), floor.scores))
        doubts.append(f"the model is no better than {floor.name}: {metric.title} {own} against {theirs}")
    return doubts


def best_task(run: RunFolder, settings: RunSettings, source: Data) -> tuple[TrainedModel, Task]:
    """Return the best model of a run, and its task with all other trained and carried parts."""
    folder, trained = run.path / "best", _best(run, settings)
    task = create_task(settings, trained.model, trained.preparation, source)
    if parts := parts_beside(task):
        fill(parts, read_tensors(folder / BESIDE), where=folder / BESIDE)
    return trained, task


def parts_beside(task: Task) -> nn.ModuleDict:
    """Return all trained and carried parts of a task, by name."""
    return nn.ModuleDict(dict([*task.trained_parts().items(), *task.carried_parts().items()]))


def _best(run: RunFolder, settings: RunSettings) -> TrainedModel:
    require_best(run.path)
    trained: TrainedModel = run_data_of(settings).load(run.path / "best")
    return trained
