"""The speed of a graph compared with its model."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitrail.deploy.bench.measure import timed
from vitrail.deploy.export.expected_loss import KEEP
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.problems import ExportError
from vitrail.runtime.observer import Observer


def speeds_of(plain: Predictor, predictor: Predictor, beside: Predictor, pixels: Tensor, observer: Observer) -> dict[str, Any]:
    """Return images per second of a graph, of the model in torch, and of ``beside``, the graph without quantization.

    ``pixels`` is a batch of prepared images, uint8 (B, C, H, W).
    """
    ways = {plain.name: plain, predictor.name: predictor}
    ways.setdefault(beside.name, beside)
    observer.begin("measuring speed", 0)
    rates = timed({name: way.network for name, way in ways.items()}, pixels)
    return {"images_per_second": {name: rate.images_per_second for name, rate in rates.items()}, "beside": beside.name}


def slower(speed: Mapping[str, Any]) -> str:
    """Return a sentence if int8 is slower here than floating point, else ""; ``speed`` is from `speeds_of`."""
    rates, beside = speed["images_per_second"], speed["beside"]
    rate = next(rates[name] for name in rates if name.endswith("int8"))
    if rate >= rates[beside]:
        return ""
    return f"int8 is slower than {beside}: {rate:.0f} images per second, not {rates[beside]:.0f}"


def require_faster(speed: Mapping[str, Any]) -> None:
    """Raise `ExportError` if int8 is slower here than floating point."""
    if what := slower(speed):
        raise ExportError(what, where="--precision", hint=KEEP)
