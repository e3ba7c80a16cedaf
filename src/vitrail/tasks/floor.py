"""The floor of a task: the scores of a constant prediction, which a trained model should exceed."""

from collections.abc import Mapping
from typing import NamedTuple

from vitrail.tasks.metrics import Metric, main_metric

MARGIN = 0.05
"""Fraction of the distance from the floor to a perfect score that a model must reach if its loss is no lower than the floor's."""


class Floor(NamedTuple):
    """The scores of a constant prediction for all items."""

    name: str
    """The constant prediction, in words, such as "one caption for all"."""
    scores: Mapping[str, float]
    """The main metric, and perhaps the loss."""


def deciding_metric(scores: Mapping[str, float], floor: Mapping[str, float]) -> Metric:
    """Return the main metric, without metrics that are 0 for both (BLEU is 0 for texts of two words)."""
    return main_metric({name: value for name, value in floor.items() if value or scores.get(name)} or floor)


def is_no_better(scores: Mapping[str, float], floor: Mapping[str, float]) -> bool:
    """Return whether scores are no better than a floor by the deciding metric, or hardly better with a loss that is no lower."""
    metric = deciding_metric(scores, floor)
    own, least = scores[metric.name], floor[metric.name]
    if not metric.higher_is_better:
        return own >= least
    most = 1.0 if metric.is_share else least
    is_lost = "loss" in floor and scores["loss"] >= floor["loss"]
    return own <= least or (is_lost and own <= least + MARGIN * (most - least))
