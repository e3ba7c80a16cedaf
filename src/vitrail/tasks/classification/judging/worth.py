"""What a graph loses of accuracy and gains in speed."""

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
    """Return the points of the score that were lost, and of the mean probability of the true labels."""
    return 100 * (before.score - after.score), 100 * (before.certainty - after.certainty)


def loss_of(plain: LabelPredictor, predictor: LabelPredictor, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Return the accuracy on some images before and after."""
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
    """Return images per second beside the model in Python and without quantisation."""
    ways = {plain.name: plain, predictor.name: predictor}
    ways.setdefault(beside.name, beside)
    observer.begin("measuring speed", 0)
    rates = timed({name: way.logits for name, way in ways.items()}, samples.pixels[:BATCH])
    return {"images_per_second": {name: rate.images_per_second for name, rate in rates.items()}, "beside": beside.name}


def slower(speed: Mapping[str, Any]) -> str:
    """Return a sentence that int8 is slower here than floats, or nothing where it is not; see `speeds_of`."""
    rates, beside = speed["images_per_second"], speed["beside"]
    rate = next(rates[name] for name in rates if name.endswith("int8"))
    if rate >= rates[beside]:
        return ""
    return f"int8 is slower than {beside}: {rate:.0f} images per second, not {rates[beside]:.0f}"


def require_faster(speed: Mapping[str, Any]) -> None:
    """Refuse int8 that is slower here than floats; raises `ExportError`."""
    if what := slower(speed):
        raise ExportError(what, where="--precision", hint=KEEP)
