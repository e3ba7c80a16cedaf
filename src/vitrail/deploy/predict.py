"""Opening the predictor of a MODEL, whatever its task: in Python, or for an exported model in an engine."""

from pathlib import Path
from typing import Any

from vitrail.deploy.bench.engines import open_graph, quickest
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.predictor import Predictor, in_python, row_of
from vitrail.errors import ConfigError
from vitrail.runtime.device import Precision, pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.task_registry import TaskRow, row_of_kind
from vitrail.weights.locate import is_exported_translator, row_behind
from vitrail.weights.model_folder.trained import Trained
from vitrail.weights.reference import open_model

WORTH_PREPACKING = 8
"""From this many images on, prepacking a model's weights saves time."""


def open_predictor(
    model: Any,
    precision: Precision | None = None,
    *,
    engine: str = "auto",
    images: int = WORTH_PREPACKING,
    group: Processes = ALONE,
) -> Any:
    """Return the predictor of a MODEL: in Python, or for an exported one in an engine.

    Args:
        model: a run folder, a model folder, an exported model, or a loaded one; a predictor has its own precision and engine.
        precision: fp32 or bf16, in Python; fp32 by default. An exported model has its own.
        engine: torch, onnxruntime or openvino; ``auto`` takes the one that is faster here, and reports it.
        images: how many there will be; for a few, no weights are prepacked and no engines are compared.
        group: the processes that predict together, which take the same engine: several measure nothing.

    Raises:
        VitrailError: with the exit code of the command.
    """
    if isinstance(model, Predictor):
        return model
    loaded = isinstance(model, Trained)
    graph = None if loaded else graph_of(model)
    if graph is not None:
        if precision is not None:
            hint = "leave it out, or export the model again"
            raise ConfigError("an exported model has a precision of its own", where="--precision", hint=hint)
        measure = images >= WORTH_PREPACKING and group.count == 1
        opened = quickest(graph, measure=measure) if engine == "auto" else open_graph(graph, engine)
        row_of(opened).module("predictor")  # refuses a graph that predicts nothing
        return opened
    if engine not in ("auto", "torch"):
        hint = f"export it first: vitrail export {'MODEL' if loaded else model} --to onnx"
        raise ConfigError(f"{engine} runs exported models, and this one is in Python", where="--engine", hint=hint)
    trained = model if loaded else open_model(model)
    return in_python(trained, precision, pick_device(), prepacked=images >= WORTH_PREPACKING)


def row_of_writer(model: Any) -> TaskRow | None:
    """Return the row of the task of a MODEL that writes texts; None of any other."""
    if isinstance(model, str | Path):
        return row_of_kind("texts", "text") if is_exported_translator(model) else row_behind(model)
    row = row_of(model)
    return row if row.answers == "text" else None
