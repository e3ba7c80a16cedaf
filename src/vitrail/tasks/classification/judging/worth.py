"""The accuracy that a graph loses, and the speed that it gains."""

from collections.abc import Mapping
from typing import Any

from vitrail.deploy.bench.measure import timed
from vitrail.deploy.export.expected_loss import KEEP
from vitrail.deploy.problems import ExportError
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.judging.samples import BATCH, Samples
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.tasks.classification.predictor import LabelPredictor
from vitrail.tasks.metrics import main_metric, metrics_in


def points_lost(before: LabelMetrics, after: LabelMetrics) -> tuple[float, float]:
    """Return the loss, in points, of the main score and of the mean probability of the true labels."""
    return 100 * (before.score - after.score), 100 * (before.certainty - after.certainty)


def loss_of(plain: LabelPredictor, predictor: LabelPredictor, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Return the scores on some images of the model (before) and of a graph (after), and their differences."""
    before, after = samples.evaluate(plain, observer, "the model"), samples.evaluate(predictor, observer, predictor.name)
    lost, certainty_lost = points_lost(before, after)
    old, new = before.scores(), after.scores()
    return {
        "images": len(samples.pixels),
        "labelled": samples.labelled,
        "metric": main_metric(old).name,
        **{metric.name: {"before": old[metric.name], "after": new[metric.name]} for metric in metrics_in(old)},
        "agreement": (before.logits.argmax(dim=1) == after.logits.argmax(dim=1)).double().mean().item(),
        "points_lost": lost,
        "certainty_lost": certainty_lost,
    }


def speeds_of(
    plain: LabelPredictor, predictor: LabelPredictor, beside: LabelPredictor, samples: Samples, observer: Observer
) -> dict[str, Any]:
    """Return images per second of a graph, of the model in torch, and of ``beside``, the graph without quantization."""
    ways = {plain.name: plain, predictor.name: predictor}
    ways.setdefault(beside.name, beside)
    observer.begin("measuring speed", 0)
    rates = timed({name: way.logits for name, way in ways.items()}, samples.pixels[:BATCH])
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
