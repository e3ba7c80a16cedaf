"""The quickest graph that holds the accuracy."""

from pathlib import Path
from typing import Any

import torch

from vitrail.deploy.artefact import ExportPrecision, Target
from vitrail.deploy.export import IMPOSSIBLE
from vitrail.deploy.export_model import export_model
from vitrail.deploy.problems import ExportError
from vitrail.models.inference import quickest_precision
from vitrail.runtime.observer import Observer
from vitrail.weights.folder import TrainedModel

Exported = tuple[Path, dict[str, Any]]


def export_quickest(
    model: str | Path | TrainedModel,
    out: str | Path | None = None,
    *,
    to: Target = "onnx",
    observer: Observer | None = None,
    **options: Any,
) -> Exported:
    """Write a graph in int8 where that is faster than floats on this machine and loses no more than a point, else in floats.

    Beside the figures of `vitrail.deploy.export_model.export_model` they say under ``because`` why it is so.

    Args:
        model, out, to, observer, options: as in `vitrail.deploy.export_model.export_model`, which has no precision then.

    Raises:
        VitrailError: as there; but int8 that is not worth it is no error.
    """
    observer = observer or Observer()
    floats = quickest_floats(to)
    if (to, "int8") in IMPOSSIBLE:
        return export_model(model, out, to=to, precision=floats, because=f"{to} has no int8", observer=observer, **options)
    try:
        because = "int8 is the faster, and holds the accuracy"
        return export_model(model, out, to=to, precision="int8", because=because, observer=observer, **options)
    except ExportError as error:
        observer.note(f"{floats} is taken: {error.what}")
        return export_model(model, out, to=to, precision=floats, because=error.what, observer=observer, **options)


def quickest_floats(to: Target) -> ExportPrecision:
    """What a kind of graph computes fastest in without being quantised."""
    quick = quickest_precision(torch.device("cpu"))
    return "fp32" if (to, quick) in IMPOSSIBLE else quick
