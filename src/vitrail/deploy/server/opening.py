"""Finding the task of a MODEL to serve."""

from pathlib import Path

from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predict import row_of_writer
from vitrail.deploy.predictor import row_of
from vitrail.task_registry import TaskRow
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

Model = str | Path | TrainedModel


def task_of(model: str | Path) -> tuple[TaskRow, Model]:
    """Return the task of a MODEL, and the MODEL, which is loaded already if its task could not be found otherwise."""
    if (writer := row_of_writer(model)) is not None:
        return writer, model
    if (graph := graph_of(model)) is not None:
        return row_of(description_in(graph)), model
    opened = open_model(model)
    return row_of(opened), opened
