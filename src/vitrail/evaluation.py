"""Evaluation of a model of any task, on its own data or on other data."""

from pathlib import Path
from typing import Any, ClassVar

from vitrail.checks import refuse_given, require_not_negative, require_positive
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.predict import open_predictor, row_of_writer
from vitrail.deploy.predictor import Predictor
from vitrail.runtime.device import Precision, pick_device, workers_beside
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import require_free_file
from vitrail.runtime.processes import ALONE, Processes
from vitrail.task_registry import TaskRow, task_row
from vitrail.tasks.answer_table import write_table
from vitrail.tasks.evaluation import Evaluation, EvaluationOptions, Request, StreamedEvaluation
from vitrail.tasks.options import read_options, settings_of
from vitrail.tasks.task import Metrics
from vitrail.training.runs.data_of_model import open_for, scoring_run
from vitrail.training.runs.run import best_task


def evaluate(
    model: Any,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    precision: Precision | None = None,
    engine: str = "auto",
    observer: Observer | None = None,
    group: Processes = ALONE,
    **options: Any,
) -> tuple[Metrics, str]:
    """Evaluate a model: its metrics, whose ``scores()`` are a dictionary, and which split was taken.

    >>> metrics, split = evaluate("runs/pose", boxes="boxes.json", table="people.csv")  # doctest: +SKIP

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        data: any source of `open_data`; a run's own data by default.
        split: train, val, test or all; by default test, else val, and all of a folder that has no splits.
        precision: fp32, the default, or bf16, in Python; an exported model has its own.
        engine: what runs an exported model; ``auto`` takes the quicker one.
        observer: gets the progress, and notes on the data.
        group: the processes that do it together; see `vitrail.runtime.processes`.
        options: of the model's task; others are refused. Of images: ``batch_size``, and ``workers``, processes that
            prepare them, by default as in training. Of predictions: ``table``, a CSV file to write, which must not exist. Of
            labels and people: ``mirror``, whether to average over mirror images, in twice the time; by default only of people. Of
            labels: ``keep``, whether the metrics also keep ``logits``, ``labels`` and ``probabilities`` of every image. Of
            people: ``boxes``, a file of a detector's boxes to look for people in; ``smoothing``, see `vitrail.predict_poses`;
            ``pictures``, a folder to write, which must not exist, with the worst people and bars of the joints. Of a model that
            makes images: ``count``, ``steps``, ``guidance``, ``features``, ``classifier``, ``bits`` and ``pictures``.
    """
    observer, in_python = observer or Observer(), _row_in_python(model)
    with group.together():
        if in_python is None:
            opened = open_predictor(model, precision, engine=engine, group=group)
            row = task_row(opened.task)
        else:
            opened, row = model, in_python
            refused = {"--precision": precision is not None, "--engine": engine not in ("auto", "torch")}
            refuse_given(settings_of(row, "evaluate", _RunOptions).refusal, refused)
        checked = read_options(row, "evaluate", options, model, _RunOptions)
        _require_possible(checked)
        request = Request(opened, model, data, split, checked, observer.note)
        evaluation = row.module("evaluate").evaluation(request) if row.has("evaluate") else _of_run(request)
    observer.begin("evaluating", len(evaluation.items))
    metrics: Metrics = evaluation.run(workers=_workers(model, checked, evaluation), on_batch=observer.advance, group=group)
    if (table := getattr(checked, "table", None)) is not None and group.first:
        write_table(table, evaluation.rows())
    return metrics, evaluation.split


class _RunOptions(EvaluationOptions):
    """Options for the evaluation of a run whose task alone defines its scores."""

    refusal: ClassVar[str] = "a model without labels is evaluated in Python, in fp32"


def _row_in_python(model: Any) -> TaskRow | None:
    """Return the row of a task that evaluates its models without a predictor: one that writes, or one of a run that scores."""
    run = scoring_run(model)
    return row_of_writer(model) if run is None else task_row(run.settings.task.name)


def _of_run(request: Request) -> Evaluation:
    """Return the evaluation of a run's best model on images, as its task does it."""
    run = scoring_run(request.reference)
    assert run is not None
    source, own_splits = open_for(request.reference, request.data, labelled=False, note=request.note)
    split = request.split or (source.evaluation_split if own_splits else "all")
    _, task = best_task(run, run.settings, source)
    return StreamedEvaluation.of_task(task, source.split(split), split, request.options.batch_size, keep=False)


def _require_possible(options: Any) -> None:
    """Raise `ConfigError` for sizes that are none, and for a table that exists."""
    if isinstance(options, EvaluationOptions):
        require_positive(batch_size=options.batch_size)
        require_not_negative(workers=options.workers or 0)
    if (table := getattr(options, "table", None)) is not None:
        require_free_file(table, where="--csv")


def _workers(model: Any, options: Any, evaluation: Evaluation) -> int:
    """Return the number of processes that read items beside this one: as requested, else as the device has use for."""
    workers: int | None = getattr(options, "workers", None)
    if workers is not None:
        return workers
    has_engine = isinstance(model, Predictor) or (isinstance(model, str | Path) and graph_of(model) is not None)
    return 0 if evaluation.reads_here or has_engine else workers_beside(pick_device())  # an engine computes on the processor
