"""Evaluation of a run on ordered classes: its model tells classes, and the run their order."""

from typing import ClassVar

from vitrail.tasks.evaluation import EvaluationOptions, Request, StreamedEvaluation
from vitrail.tasks.ordinal.settings import OrdinalSettings
from vitrail.tasks.ordinal.task import Ordinal
from vitrail.training.runs.data_of_model import open_for, scoring_run
from vitrail.weights.reference import open_model


class OrdinalOptions(EvaluationOptions):
    """Options of an evaluation of ordered classes."""

    refusal: ClassVar[str] = "a run on ordered classes is evaluated in Python, in fp32"


SETTINGS = OrdinalOptions


def evaluation(request: Request) -> StreamedEvaluation:
    """Return the evaluation of a run's best model on images whose classes are matched with its own; raises `DataError`."""
    run = scoring_run(request.reference)
    assert run is not None
    source, own_splits = open_for(request.reference, request.data, note=request.note)
    split = request.split or (source.evaluation_split if own_splits else "all")
    trained = open_model(run.path)
    settings = run.settings.task
    assert isinstance(settings, OrdinalSettings)
    task = Ordinal(trained.model, trained.preparation, trained.labels, settings.order or trained.labels)
    items = trained.relabelled(source, source.split(split), request.note)
    return StreamedEvaluation.of_task(task, items, split, request.options.batch_size)
