"""The accuracy that a graph loses."""

from typing import Any

from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.judging.samples import Samples
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
