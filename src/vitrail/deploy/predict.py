"""Opening the predictor of a MODEL of any task: in PyTorch, or for an exported model in an engine."""

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
"""Number of images from which prepacking a model's weights saves time."""


def open_predictor(
    model: Any,
    precision: Precision | None = None,
    *,
    engine: str = "auto",
    images: int = WORTH_PREPACKING,
    group: Processes = ALONE,
) -> Any:
    """Return the predictor of a MODEL: in PyTorch, or for an exported model in an engine.

    Args:
        model: a run folder, a model folder, an exported model, a loaded model, or a predictor, which is returned as it is.
        precision: fp32 (the default) or bf16, in PyTorch. An exported model has its own precision.
        engine: torch, onnxruntime or openvino; ``auto`` measures which is faster on this machine, and reports it.
        images: expected number of images; for a few, weights are not prepacked and engines are not compared.
        group: the processes that predict together; several use the default engine without a measurement.

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
            raise ConfigError("an exported model has a fixed precision", where="--precision", hint=hint)
        measure = images >= WORTH_PREPACKING and group.count == 1
        opened = quickest(graph, measure=measure) if engine == "auto" else open_graph(graph, engine)
        row_of(opened).module("predictor")  # refuses a graph that predicts nothing
        return opened
    if engine not in ("auto", "torch"):
        hint = f"export it first: vitrail export {'MODEL' if loaded else model} --to onnx"
        raise ConfigError(f"{engine} runs exported models only, and this one is not exported", where="--engine", hint=hint)
    trained = model if loaded else open_model(model)
    return in_python(trained, precision, pick_device(), prepacked=images >= WORTH_PREPACKING)


def row_of_writer(model: Any) -> TaskRow | None:
    """Return the task-registry row of a MODEL that writes text; None for any other MODEL."""
    if isinstance(model, str | Path):
        return row_of_kind("texts", "text") if is_exported_translator(model) else row_behind(model)
    row = row_of(model)
    return row if row.answers == "text" else None
