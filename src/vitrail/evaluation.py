"""Evaluation of a model of any task, on its own data or on other data."""

from functools import partial
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
from vitrail.training.runs.data_of_model import open_any, open_for, scoring_run
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
    """Evaluate a model, and return its metrics, whose ``scores()`` is a dictionary, and the name of the evaluated split.

    >>> metrics, split = evaluate("runs/pose", boxes="boxes.json", table="people.csv")  # doctest: +SKIP

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        data: any source of `open_data`; by default the data that the run was trained on.
        split: train, val, test or all; by default test, else val, and all images of a folder without splits.
        precision: fp32 (default) or bf16, for a model that torch runs; the precision of an exported model is fixed.
        engine: the engine that runs an exported model; ``auto`` takes the faster one.
        observer: receives the progress, and notes on the data.
        group: the processes that share the work; see `vitrail.runtime.processes`.
        options: options of the model's task; any other option is an error. Models of images have ``batch_size`` and
            ``workers``, the number of processes that prepare images (by default as in training). Models that predict have
            ``table``, a CSV file to write, which must not exist. Classifiers and pose models have ``mirror``: average over each
            image and its mirror image, in twice the time (default: only pose models do). Classifiers have ``keep``: retain
            ``logits``, ``labels`` and ``probabilities`` of every image in the metrics. Pose models have ``boxes``, a file of
            detected person boxes; ``smoothing``, see `vitrail.predict_poses`; and ``pictures``, a folder to write, which must
            not exist, with the people of the worst scores and a bar chart of the joints. Segmenters have ``mirror``, ``window``
            and ``overlap``; see `vitrail.predict_masks`. Diffusion models have ``count``,
            ``steps``, ``guidance``, ``features``, ``classifier``, ``bits`` and ``pictures``.
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
    """Options for a task without an ``evaluate`` module, whose runs are scored as in training."""

    refusal: ClassVar[str] = "a model without labels is evaluated in Python, in fp32"


def _row_in_python(model: Any) -> TaskRow | None:
    """Return the task's row if it evaluates models without a predictor: they write text, or are runs scored as in training."""
    run = scoring_run(model)
    return row_of_writer(model) if run is None else task_row(run.settings.task.name)


def _of_run(request: Request) -> Evaluation:
    """Return the evaluation of a run's best model on images, with the metrics that its task computes in training."""
    run = scoring_run(request.reference)
    assert run is not None
    opened = open_any if task_row(run.settings.task.name).labels == "optional" else partial(open_for, labelled=False)
    source, own_splits = opened(request.reference, request.data, note=request.note)
    split = request.split or (source.evaluation_split if own_splits else "all")
    _, task = best_task(run, run.settings, source)
    return StreamedEvaluation.of_task(task, source.split(split), split, request.options.batch_size)


def _require_possible(options: Any) -> None:
    """Raise `ConfigError` for a batch size or number of workers out of range, and for a table that exists."""
    if isinstance(options, EvaluationOptions):
        require_positive(batch_size=options.batch_size)
        require_not_negative(workers=options.workers or 0)
    if (table := getattr(options, "table", None)) is not None:
        require_free_file(table, where="--csv")


def _workers(model: Any, options: Any, evaluation: Evaluation) -> int:
    """Return the number of additional processes that read items: as requested, else the default of the device."""
    workers: int | None = getattr(options, "workers", None)
    if workers is not None:
        return workers
    has_engine = isinstance(model, Predictor) or (isinstance(model, str | Path) and graph_of(model) is not None)
    return 0 if evaluation.reads_here or has_engine else workers_beside(pick_device())  # an engine needs all CPU cores itself
