"""What a graph loses of accuracy and gains in speed, and whether that is worth it."""

from collections.abc import Mapping
from typing import Any

from vitrail.deploy.measure import timed
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.problems import ExportError
from vitrail.deploy.samples import BATCH, Samples
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification import LabelMetrics
from vitrail.tasks.metrics import main_metric, metrics_in

MOST_LOST = 1.0
"""Points of the score that int8 may lose."""
ENOUGH = 200
"""From this many images on accuracy alone shows a loss; with fewer, one image is half a point or more: certainty counts too."""


def points_lost(before: LabelMetrics, after: LabelMetrics) -> tuple[float, float]:
    """Points of the score that were lost, and of the mean probability of the true labels."""
    return 100 * (before.score - after.score), 100 * (before.certainty - after.certainty)


def surely_lost(points: float, certainty: float, images: int) -> float:
    """Points of accuracy that were lost, as far as so many images can show."""
    return points if images >= ENOUGH else min(points, certainty)


def loss_of(plain: Predictor, predictor: Predictor, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Accuracy on some images before and after."""
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


def speeds_of(plain: Predictor, predictor: Predictor, beside: Predictor, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Images per second beside the model in Python and without quantisation."""
    ways = {plain.name: plain, predictor.name: predictor}
    ways.setdefault(beside.name, beside)
    observer.begin("measuring speed", 0)
    rates = timed({name: way.logits for name, way in ways.items()}, samples.pixels[:BATCH])
    return {"images_per_second": {name: rate.images_per_second for name, rate in rates.items()}, "beside": beside.name}


def require_worth(loss: Mapping[str, Any], speed: Mapping[str, Any]) -> None:
    """Refuse int8 that loses too much, or is slower than floats; see `loss_of` and `speeds_of`.

    Raises:
        ExportError: it is not worth it.
    """
    lost = surely_lost(loss["points_lost"], loss["certainty_lost"], loss["images"])
    rates = speed["images_per_second"]
    name = next(name for name in rates if name.endswith("int8"))
    hint = "keep it all the same: --force"
    if lost > MOST_LOST:
        of = "accuracy" if loss["labelled"] else "agreement with the model"
        raise ExportError(f"int8 loses {lost:.1f} points of {of} on {loss['images']} images", where="--precision", hint=hint)
    beside = speed["beside"]
    if rates[name] < rates[beside]:
        what = f"int8 is slower than {beside}: {rates[name]:.0f} images per second, not {rates[beside]:.0f}"
        raise ExportError(what, where="--precision", hint=hint)
