"""The model behind a MODEL to serve: its task, and what of it the workers of a server share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predict import open_any_predictor
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.runtime.device import Precision
from vitrail.task_registry import TaskRow, task_row
from vitrail.weights.locate import is_captioner, translates
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

Model = str | Path | TrainedModel


def task_of(model: str | Path) -> tuple[TaskRow, Model]:
    """Return the task of a MODEL, and the model, opened where only that tells its task."""
    if translates(model):
        return task_row("translate"), model
    if is_captioner(model):
        return task_row("caption"), model
    graph = graph_of(model)
    opened = open_model(model) if graph is None else description_in(graph)
    row = task_row("pose" if isinstance(opened.preparation, BoxPreparation) else "classification")
    return row, opened if isinstance(opened, TrainedModel) else model


def predictor_of(
    model: Model,
    precision: Precision | None,
    engine: str,
    finish: Callable[[Any], Any] = lambda predictor: predictor,
) -> Callable[[Place], Any]:
    """Return a function that gives the predictor of a worker, made by ``finish`` of what `open_any_predictor` opens.

    A model in Python is opened now, for all workers. A graph is opened by each, as its engine has threads: the first worker
    finds out which engine is the quickest, and the others believe it.
    """
    if isinstance(model, TrainedModel):
        shared = finish(open_any_predictor(model, precision, engine=engine))
        return lambda place: shared

    def of_graph(place: Place) -> Any:
        head = place.board.head
        predictor = open_any_predictor(model, precision, engine=head.engine.decode() or engine)
        head.engine = predictor.name.split()[0].encode()
        return finish(predictor)

    return of_graph
