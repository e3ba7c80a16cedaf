"""What a person does with Vitrail, as functions: train, resume, evaluate, predict. The commands are thin around these."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.checks import refuse_given
from vitrail.data.transform import Transform
from vitrail.deploy import bench as benches
from vitrail.deploy.evaluate_translator import evaluate_translator
from vitrail.deploy.export_translator import Exportable, export_any
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predict import predict as predict
from vitrail.deploy.predictor import OnBatch, Predictor, in_python
from vitrail.deploy.server import serve as server
from vitrail.deploy.translate import AnyTranslator, is_translator
from vitrail.files import path_of, whole_folder
from vitrail.result import Run, write_report
from vitrail.runtime.device import Precision, pick_device
from vitrail.runtime.observer import Note, Observer
from vitrail.runtime.output import free_folder, name_of, require_free, require_free_file
from vitrail.runtime.processes import ALONE, Processes
from vitrail.study.attention import look_of, relevance_map
from vitrail.study.subjects import subjects_of
from vitrail.tasks.answer_table import evaluated_rows, write_table
from vitrail.tasks.task import Metrics
from vitrail.tasks.teachers import AnyTeacher
from vitrail.training.configuration import nested
from vitrail.training.data_of_model import open_any, open_for, unlabelled_run
from vitrail.training.pairs import open_pairs_for
from vitrail.training.preparing import teacher_settings
from vitrail.training.progress import watching
from vitrail.training.resuming import settings_to_resume
from vitrail.training.run import begin_run, evaluate_run, finished_run, resume_run
from vitrail.training.run_folder import RunFolder
from vitrail.training.sweep import Sweep, dotted_name
from vitrail.weights.folder import TrainedModel
from vitrail.weights.reference import open_model

if TYPE_CHECKING:
    from vitrail.study.comparison import Compared


def train(
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    recipe: str | None = None,
    config: str | Path | None = None,
    observer: Observer | None = None,
    progress: bool | None = None,
    transform: Transform | None = None,
    teacher: str | Path | AnyTeacher | None = None,
    **settings: Any,
) -> Run:
    """Train a model and write its run folder.

    Args:
        data: ``digits``, a folder of images, or any other source of `open_data`; the recipe's own if it has one.
        out: the run folder; ``runs/NAME-DATE-TIME`` by default. It must not exist.
        recipe: a name of `vitrail recipes`; ``finetune`` where ``start`` names a model, the recipes of the digits or of CIFAR-10
            for them, else ``scratch``.
        config: a YAML file over the recipe.
        observer: gets the progress of the run, in place of what would be shown.
        progress: whether to show how it goes, on stderr or in the cell of a notebook; None does on a terminal and in a notebook.
        transform: a change of your own to every training picture, before flips and crops: a torchvision transform, say.
        teacher: a model to learn from as well: the path of one, a loaded one, or any callable as a `vitrail.CallableTeacher`.
        settings: any setting over recipe and file: by its short name (``epochs=5``), its dotted name
            (``**{"model.depth": 6}``), or a whole section (``training={"ema": 0.99}``).

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    if data is not None:
        settings["data"] = str(data)
    given, own = nested(settings | teacher_settings(teacher)), None if isinstance(teacher, str | Path) else teacher
    with watching(observer, progress) as observer:
        options: dict[str, Any] = {"observer": observer, "transform": transform, "teacher": own}
        return Run.of(begin_run(out, write_report, given, recipe=recipe, config=config, **options))


def resume(
    folder: str | Path,
    *,
    observer: Observer | None = None,
    progress: bool | None = None,
    transform: Transform | None = None,
    teacher: AnyTeacher | None = None,
    **settings: Any,
) -> Run:
    """Continue an interrupted run with its own settings and data, from its newest complete checkpoint; a finished one is opened.

    Args:
        folder: the run folder.
        observer, progress: as in `train`.
        transform, teacher: the same as in the run; settings are data and hold no callable.
        settings: new values for what does not decide the weights, as in `train`: ``**{"data.workers": 4}``.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    run, given = RunFolder.open(path_of(folder)), nested(settings)
    extends = settings_to_resume(run, given).schedule.extended_at != run.settings.schedule.extended_at
    if not extends and (ended := finished_run(run)) is not None:
        return Run(*ended)
    with watching(observer, progress) as observer:
        return Run.of(resume_run(folder, write_report, given, observer=observer, transform=transform, teacher=teacher))


def evaluate(
    model: str | Path | TrainedModel | AnyTranslator | Predictor,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    batch_size: int = 64,
    workers: int = 0,
    precision: Precision | None = None,
    engine: str = "auto",
    keep: bool = False,
    on_start: OnBatch | None = None,
    on_batch: OnBatch | None = None,
    on_note: Note = lambda text: None,
    table: Path | None = None,
    group: Processes = ALONE,
) -> tuple[Metrics, str]:
    """Evaluate a model: its metrics, whose ``scores()`` are a dictionary, and which split was taken.

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        data: any source of `open_data`; a run's own data by default.
        split: train, val, test or all; by default test, else val, and all of a folder that has no splits.
        batch_size, workers: images per batch; processes that prepare images.
        precision, engine: as in `open_predictor`.
        keep: whether the metrics also keep the ``logits`` and ``labels`` of every image, and their ``probabilities``.
        on_start, on_batch, on_note: called with the number of items; the size of every batch; what to know of the data.
        table: a CSV file to write, which must not exist, with a row for each image; see `vitrail.tasks.answer_table`.
        group: the processes that do it together; see `vitrail.runtime.processes`.
    """
    engines = {"--precision": precision is not None, "--engine": engine not in ("auto", "torch")}
    if is_translator(model):
        refuse_given("a translator is evaluated as it is", {**engines, "--csv": table is not None})
        pairs_for = partial(open_pairs_for, reference=model, data=data, split=split, note=on_note)
        return evaluate_translator(model, pairs_for, on_start=on_start, on_batch=on_batch, group=group)
    assert not isinstance(model, AnyTranslator)
    run = unlabelled_run(model)
    with group.together():
        if run:
            refuse_given("a model without labels is evaluated in Python, in fp32", engines)
        if table is not None:
            require_free_file(table, where="--csv")
            refuse_given("a model without labels gives no answers to write", {"--csv": run is not None})
        predictor = None if run else open_predictor(model, precision, engine=engine)
        source, own_splits = open_for(model, data, labelled=run is None, note=on_note)
        chosen = split or (source.evaluation_split if own_splits else "all")
        items = source.split(chosen) if predictor is None else predictor.relabelled(source, source.split(chosen))
    if on_start:
        on_start(len(items))
    options: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "on_batch": on_batch, "group": group}
    if predictor is not None:
        metrics = predictor.evaluate(items, keep=keep or table is not None, **options)
        if table is not None and group.first:
            write_table(table, evaluated_rows(predictor, items, metrics.probabilities))
        return metrics, chosen
    assert run is not None
    return evaluate_run(run, source, items, **options), chosen


def export(model: Exportable, out: str | Path | None = None, **options: Any) -> tuple[Path, dict[str, Any]]:
    """Write a model for an engine; see `vitrail.deploy.export_model.export_model`, of a translator `export_translator`."""
    return export_any(model, out, open_for=open_for, pairs_for=open_pairs_for, **options)


def bench(model: str | Path, data: str | Path | None = None, out: str | Path | None = None, **options: Any) -> dict[str, Any]:
    """Measure a model in engines and precisions, into ``out`` with a picture if it is given; see `vitrail.deploy.bench.bench`."""
    if out is not None:
        require_free(path_of(out))
    found = benches.bench(model, data, open_for=open_for, **options)
    if out is not None:
        from vitrail.study.frontier import write_bench

        write_bench(path_of(out), found, benches.best_rows(found["rows"]))
    return found


def serve(model: str | Path, **options: Any) -> int:
    """Answer over HTTP until a signal comes, and give its number; see `vitrail.deploy.server.serve.serve`."""
    return server.serve(model, look_of=look_of, relevance_of=lambda trained: look_of(trained, relevance_map), **options)


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
        split, images: which images to look at, as in `evaluate`, and how many of them, at random.
        layer, head, query: of the attention that is drawn, as in `vitrail.study.attention_map`; by default the last
            layer, all heads, from what the answer is read from.
        observer: gets the progress.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    from vitrail.study.attention_sections import Look
    from vitrail.study.predictions import Predictions
    from vitrail.study.study import write_study  # scikit-learn and matplotlib take a second to import

    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "studies", name), observer or Observer()
    trained = model if isinstance(model, TrainedModel) else open_model(model)
    where, subjects = subjects_of(trained, data, lambda: open_any(model, data, note=observer.note), split, images)
    if trained.labels and not subjects.labelled and subjects.why:
        observer.note(subjects.why)
    trained.model.to(pick_device()).eval()
    with whole_folder(folder, replace=False) as draft:
        predictions = None
        if trained.labels:
            observer.begin("answers", len(subjects.items))
            predictor = in_python(trained, device=next(trained.model.parameters()).device)
            metrics = predictor.evaluate(subjects.items, batch_size=32, keep=True, on_batch=observer.advance)
            predictions = Predictions.of(trained, subjects, metrics)
        title, look = f"{name} on {name_of(where)}", Look(layer, head, query)
        numbers = write_study(draft, trained, subjects, predictions, observer, title=title, attention=look)
    return folder, numbers


def compare(runs: Sequence[str | Path], out: str | Path | None = None) -> "list[Compared]":
    """Runs side by side, in the order given: scores with their uncertainty, curves, cost, and the settings that differ.

    Args:
        runs: folders of runs, finished or not.
        out: a folder to write ``report.html``, ``curves.png`` and ``comparison.json`` to, which must not exist; none by default.

    Raises:
        ModelFileError: a folder that is no run.
    """
    from vitrail.study.comparison import Compared, by_last_name
    from vitrail.study.comparison_page import write_comparison

    if out is not None:
        require_free(path_of(out))
    found = by_last_name([Compared(str(run), **RunFolder.open(path_of(run)).record) for run in runs])
    if out is not None:
        with whole_folder(path_of(out), replace=False) as draft:
            write_comparison(draft, found)
    return found


def sweep(
    data: str | Path | None,
    out: str | Path,
    *,
    over: Mapping[str, Sequence[Any]],
    recipe: str | None = None,
    config: str | Path | None = None,
    against: str | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> "list[tuple[dict[str, Any], Compared]]":
    """Train a model for every combination, and write one table and one picture of all of them.

    Called again with the same arguments it goes on where it was: finished runs stay, interrupted ones are resumed. A run that
    diverges stays in the table without a score, and is not tried again.

    Args:
        data: as in `train`.
        out: a folder; every run has one of its own in it.
        over: values by the short or dotted name of a setting; runs that differ only in the seed are averaged. Models may be of
            several architectures: each takes the settings of a model, given to all, that it has.
        recipe, config, settings: of all runs, as in `train`.
        against: the setting, or ``operations`` of training, to draw scores against; by default the first ``over`` with numbers.
        observer: gets the progress of each run.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    from vitrail.study.comparison import Compared
    from vitrail.study.sweeps import score_axis, write_sweep

    sweep, folder = Sweep(data, over, recipe=recipe, config=config, settings=settings), path_of(out)
    against = score_axis(against, sweep.axes, dotted_name)
    runs = sweep.run(folder, observer or Observer(), train=train, resume=resume)
    found = [(values, Compared(name, **record)) for values, name, record in runs]
    write_sweep(folder, found, title=sweep.title, against=against)
    return found
