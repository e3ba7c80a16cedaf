"""The model behind a MODEL to serve: its task, and what of it the workers of a server share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predict import open_predictor, row_of_writer
from vitrail.deploy.predictor import row_of
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.runtime.device import Precision
from vitrail.task_registry import TaskRow
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

Model = str | Path | TrainedModel


def task_of(model: str | Path) -> tuple[TaskRow, Model]:
    """Return the task of a MODEL, and the model, opened where only that tells its task."""
    if (writer := row_of_writer(model)) is not None:
        return writer, model
    if (graph := graph_of(model)) is not None:
        return row_of(description_in(graph)), model
    opened = open_model(model)
    return row_of(opened), opened


def predictor_of(
    model: Model,
    precision: Precision | None,
    engine: str,
    finish: Callable[[Any], Any] = lambda predictor: predictor,
) -> Callable[[Place], Any]:
    """Return a function that gives the predictor of a worker, made by ``finish`` of what `open_predictor` opens.

    A model in Python is opened now, for all workers. A graph is opened by each, as its engine has threads: the first worker
    finds out which engine is the quickest, and the others believe it.
    """
    if isinstance(model, TrainedModel):
        shared = finish(open_predictor(model, precision, engine=engine))
        return lambda place: shared

    def of_graph(place: Place) -> Any:
        head = place.board.head
        predictor = open_predictor(model, precision, engine=head.engine.decode() or engine)
        head.engine = predictor.name.split()[0].encode()
        return finish(predictor)

    return of_graph
