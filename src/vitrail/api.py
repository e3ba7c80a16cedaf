"""What a person does with Vitrail, as functions: train, resume, evaluate, predict. The commands are thin around these."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitrail.data.copies import leak_warning
from vitrail.data.sources import ImageData, Item, open_data
from vitrail.data.transform import Transform
from vitrail.data.unlabelled import unlabelled_items
from vitrail.deploy import bench as benches
from vitrail.deploy.export_model import export_model
from vitrail.deploy.predict import Picture, open_predictor, predict
from vitrail.deploy.predictor import Labels, OnBatch, Predictor, in_python, require_finite
from vitrail.deploy.server import serve as server
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of, whole_folder, write_json
from vitrail.models.cost import cost, totals
from vitrail.runtime.device import Precision, pick_device
from vitrail.runtime.environment import environment
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import default_folder, free_folder, name_of, require_free
from vitrail.runtime.processes import ALONE, Processes, open_processes
from vitrail.runtime.signals import InterruptedRunError, remembered_signals
from vitrail.study.attention import look_of
from vitrail.study.subjects import Subjects, labelled_subjects
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
from vitrail.training.run_folder import RunFolder, open_for
from vitrail.training.settings import RunSettings, check_names, merge, nested
from vitrail.weights.folder import TrainedModel
from vitrail.weights.reference import load_model, open_model

if TYPE_CHECKING:
    from vitrail.study.comparison import Compared
    from vitrail.study.predictions import Predictions


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, the best model, and its scores on the split that reports are made on."""

    folder: Path
    trained: TrainedModel
    split: str
    scores: dict[str, float | int]

    def predict(self, images: Picture | Iterable[Picture], *, top: int = 5) -> list[Labels]:
        """See `predict`."""
        return predict(self.trained, images, top=top)


def train(
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    recipe: str | None = None,
    config: str | Path | None = None,
    observer: Observer | None = None,
    transform: Transform | None = None,
    **settings: Any,
) -> Run:
    """Train a model and write its run folder.

    Args:
        data: ``digits``, a folder of images, or any other source of `open_data`; the recipe's own if it has one.
        out: the run folder; ``runs/NAME-DATE-TIME`` by default. It must not exist.
        recipe: a name of `vitrail recipes`; ``finetune`` where ``start`` names a model, that of the digits or of CIFAR-10
            for them, else ``scratch``.
        config: a YAML file over the recipe.
        observer: told how the run goes.
        transform: a change of your own to every training picture, before flips and crops: a torchvision transform, say.
        settings: any setting over recipe and file: by its short name (``epochs=5``), its dotted name
            (``**{"model.depth": 6}``), or a whole section (``training={"ema": 0.99}``).

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    if data is not None:
        settings["data"] = str(data)
    resolved, start = resolve_run(recipe, path_of(config) if config else None, nested(settings))
    observer = observer or Observer()
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
                torch.manual_seed(resolved.training.seed)
                model = start_model(resolved, start, source.classes)
                preparation = preparation_of(resolved)
                trainer = Trainer(
                    resolved, model, preparation, source, run, transform=transform, teacher=teacher, group=group, signals=signals
                )
                if trainer.epochs > resolved.training.epochs:
                    run.log(f"{trainer.epochs} epochs make the {resolved.training.min_steps} steps of training.min_steps")
                return _finish(trainer, observer)


def resume(folder: str | Path, *, observer: Observer | None = None, transform: Transform | None = None, **settings: Any) -> Run:
    """Continue an interrupted run with its own settings and data, from its newest complete checkpoint.

    Args:
        folder: the run folder.
        observer: told how the run goes.
        transform: that of the run; settings are data and cannot hold it.
        settings: new values for what does not decide the weights, as in `train`: ``**{"data.workers": 4}``.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    run = RunFolder.open(path_of(folder))
    begun, observer = run.settings, observer or Observer()
    named = nested(settings)
    check_names(named)
    resolved = RunSettings.read(merge(begun.model_dump(mode="json"), named))
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
            torch.manual_seed(resolved.training.seed)
            model, preparation = start_model(resolved, start, source.classes), preparation_of(resolved)
            trainer = Trainer(
                resolved, model, preparation, source, run, transform=transform, teacher=teacher, group=group, signals=signals
            )
            trainer.restore(observer)
            return _finish(trainer, observer)


def evaluate(
    model: str | Path | TrainedModel | Predictor,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    batch_size: int = 64,
    workers: int = 0,
    precision: Precision | None = None,
    engine: str = "auto",
    on_start: OnBatch | None = None,
    on_batch: OnBatch | None = None,
    group: Processes = ALONE,
) -> tuple[Evaluation, str]:
    """Evaluate a model on labelled images; also says which split was taken.

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        data: any source of `open_data`; a run's own data by default.
        split: train, val, test or all; by default test, else val, and all of a folder that has no splits.
        batch_size: images per batch.
        workers: processes that prepare images.
        precision, engine: as in `open_predictor`.
        on_start: told the number of images.
        on_batch: told the size of every finished batch.
        group: the processes that do it together; see `vitrail.runtime.processes`.
    """
    with group.together():
        predictor = open_predictor(model, precision, engine=engine)
        source, own_splits = open_for(model, data)
        chosen = split or (source.evaluation_split if own_splits else "all")
        items = predictor.relabelled(source, source.split(chosen))
    if on_start:
        on_start(len(items))
    result = predictor.evaluate(items, batch_size=batch_size, workers=workers, on_batch=on_batch, group=group)
    require_finite(result.logits)
    return result, chosen


def export(model: str | Path | TrainedModel, out: str | Path | None = None, **options: Any) -> tuple[Path, dict[str, Any]]:
    """Write a model as a graph that an engine runs; see `vitrail.deploy.export_model.export_model`."""
    return export_model(model, out, open_for=open_for, **options)


def bench(model: str | Path, data: str | Path | None = None, out: str | Path | None = None, **options: Any) -> dict[str, Any]:
    """Measure a model in engines and precisions, side by side; see `vitrail.deploy.bench.bench`.

    ``out`` is a folder for ``bench.json`` and ``frontier.png``, which must not exist; none by default.
    """
    if out is not None:
        require_free(path_of(out))
    found = benches.bench(model, data, open_for=open_for, **options)
    if out is not None:
        from vitrail.study.figures import save
        from vitrail.study.pictures import frontier

        with whole_folder(path_of(out), replace=False) as draft:
            write_json(draft / "bench.json", found)
            shown = [
                (r["engine"], r["precision"], r["images_per_second"], r.get("top1")) for r in benches.best_rows(found["rows"])
            ]
            save(frontier(shown), draft / "frontier.png")
    return found


def serve(model: str | Path, **options: Any) -> int:
    """Answer over HTTP until a signal comes, and give its number; see `vitrail.deploy.server.serve.serve`."""
    return server.serve(model, look_of=look_of, **options)


def study_model(
    model: str | Path | TrainedModel,
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    split: str | None = None,
    images: int = 100,
    layer: int | None = None,
    head: int | None = None,
    query: tuple[int, int] | None = None,
    observer: Observer | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Look into a model: attention, positions, filters, probes, errors, cost. Gives the folder and what is in its study.json.

    Args:
        model: a run folder, a model folder, or a loaded model.
        data: any source of `open_data`, or images without labels: a file or a folder; a run's own data by default. Where labels
            are none of the model's, its errors are left out; probes can do with any.
        out: the folder to write, which must not exist; ``studies/NAME-DATE-TIME`` by default.
        split: which images to look at; as in `evaluate`.
        images: so many of them, at random.
        layer, head, query: of the attention that is drawn, as in `vitrail.study.attention_map`; by default that of the last
            layer, all heads, from what the answer is read from.
        observer: told how it goes.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    from vitrail.study.study import Look, write_study  # scikit-learn and matplotlib take a second to import

    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "studies", name), observer or Observer()
    trained = model if isinstance(model, TrainedModel) else open_model(model)
    plain = unlabelled_items(data, images, trained.multi_label) if data is not None else []
    if plain and split is not None:
        raise ConfigError("images without labels have no splits", where="--split", hint="leave it out")
    where, subjects = str(data), Subjects(plain)
    if not plain:
        source, own_splits = open_for(model, data)
        chosen = split or (source.evaluation_split if own_splits else "all")
        where, subjects = source.source, labelled_subjects(trained, source, chosen, images)
    if trained.labels and not subjects.labelled and subjects.why:
        observer.note(subjects.why)
    trained.model.to(pick_device()).eval()
    with whole_folder(folder, replace=False) as draft:
        predictions = _predictions(subjects, trained, observer) if trained.labels else None
        numbers = write_study(
            draft,
            trained,
            subjects,
            predictions,
            title=f"{name} on {name_of(where)}",
            attention=Look(layer, head, query),
            begin=observer.begin,
            advance=observer.advance,
        )
    return folder, numbers


def compared(run: RunFolder, name: str) -> "Compared":
    """What is known of a run, to be put beside others."""
    from vitrail.study.comparison import Compared

    settings, standing = run.settings, run.standing
    parameters, macs = totals(settings.model.config)
    return Compared(
        name,
        standing["state"],
        settings.model_dump(mode="json"),
        run.rows,
        parameters,
        macs,
        standing.get("split", ""),
        standing.get("scores", {}),
    )


def _predictions(subjects: Subjects, trained: TrainedModel, observer: Observer) -> "Predictions":
    """What a model says of the images of a study."""
    from vitrail.study.predictions import Predictions

    observer.begin("answers", len(subjects.items))
    predictor = in_python(trained, device=next(trained.model.parameters()).device)
    result = predictor.evaluate(subjects.items, batch_size=32, on_batch=observer.advance)
    require_finite(result.logits)
    chances = result.probabilities.numpy()
    return Predictions(trained.labels, subjects.split, subjects.items, trained.preparation, chances, result.scores())


def compare(runs: Sequence[str | Path], out: str | Path | None = None) -> "list[Compared]":
    """Runs side by side, in the order given: scores with their uncertainty, curves, cost, and the settings that differ.

    Args:
        runs: folders of runs, finished or not.
        out: a folder to write ``report.html``, ``curves.png`` and ``comparison.json`` to, which must not exist; none by default.

    Raises:
        ModelFileError: a folder that is no run.
    """
    from vitrail.study.comparison import write_comparison

    if out is not None:
        require_free(path_of(out))
    found = [compared(RunFolder.open(path_of(run)), str(run)) for run in runs]
    last = [Path(run.name).resolve().name for run in found]
    if len(set(last)) == len(found):  # else they keep their whole paths
        found = [replace(run, name=name) for run, name in zip(found, last, strict=True)]
    if out is not None:
        with whole_folder(path_of(out), replace=False) as draft:
            write_comparison(draft, found)
    return found


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


def _finish(trainer: Trainer, observer: Observer) -> Run:
    """Train to the end, then report on the best model."""
    trainer.run(observer)
    group, source = trainer.group, trainer.data
    group.all_reduce_max(0)  # the first process has written the model before any other reads it
    trained, split = load_model(trainer.folder.path / "best"), source.evaluation_split
    predictor = in_python(trained, device=trainer.device)

    def on_batch(images: int) -> None:
        observer.advance(images)
        (number,) = group.all_reduce_max(trainer.signals.received)
        if number:
            trainer.stop(number)

    def look(name: str, items: list[Item]) -> Evaluation:
        """The model's answers to some images, unless a signal comes."""
        observer.begin(f"evaluating {name}", len(items))
        size, workers = trainer.settings.training.batch, trainer.settings.data.workers
        return predictor.evaluate(items, batch_size=size, workers=workers, on_batch=on_batch, group=group)

    items = trainer.few(source.split(split))
    result = look(split, items)
    validation = look("val", trainer.validation) if source.multi_label else None
    if group.first:
        _report(trainer, trained, split, items, result, validation)
    trainer.finish(split=split, scores=result.scores())
    (number,) = group.all_reduce_max(trainer.signals.received)
    if number:
        what = "finished before it could be stopped"
        raise InterruptedRunError(number, trainer.folder.path, f"vitrail evaluate {trainer.folder.path}", what=what)
    return Run(trainer.folder.path, trained, split, result.scores())


def _report(
    trainer: Trainer,
    trained: TrainedModel,
    split: str,
    items: list[Item],
    result: Evaluation,
    validation: Evaluation | None,
) -> None:
    from vitrail.study.report import write_report  # scikit-learn and matplotlib take a second to import

    settings, source = trainer.settings, trainer.data
    write_report(
        trainer.folder.path,
        settings=settings.model_dump(mode="json"),
        environment=environment(),
        rows=trainer.rows,
        kept=trainer.best["epoch"] if trainer.best else 0,
        cost=cost(settings.model.config),
        classes=source.classes,
        counts={name: source.counts(name) for name in source.splits},
        split=split,
        items=items,
        preparation=trained.preparation,
        probabilities=result.probabilities.numpy(),
        scores=result.scores(),
        validation=None if validation is None else (validation.labels.numpy(), validation.probabilities.numpy()),
    )
