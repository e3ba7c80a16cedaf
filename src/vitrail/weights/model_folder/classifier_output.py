"""Labels for a model's output, and the thresholds that decide which labels are accepted."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitrail.data.class_matching import match_classes
from vitrail.data.items import ImageData, Item
from vitrail.errors import DataError
from vitrail.runtime.observer import Note
from vitrail.weights.model_folder.imagenet import aliases_of

Labels = list[tuple[str, float]]
"""Labels with their probabilities, best first."""


class Answer(NamedTuple):
    """The output of a model for one image."""

    best: Labels
    """The ``top`` most probable labels."""
    accepted: Labels
    """The predicted labels: the most probable one, or with ``multi_label`` all that reach their thresholds, possibly none.

    With ``reject`` it is empty if the most probable label does not reach its threshold.
    """

    def to_json(self, image: str, *, several: bool) -> dict[str, Any]:
        """Return the prediction as JSON values; with ``several`` (several labels, or none) the accepted labels, too."""
        best = {"image": image, "predictions": [{"label": label, "score": score} for label, score in self.best]}
        return {**best, "labels": [label for label, _ in self.accepted]} if several else best


class Labelled:
    """A base of classifiers: of PyTorch models and of exported models."""

    labels: list[str]
    """A name for every logit, by index; empty for a model that returns feature vectors."""
    multi_label: bool
    """True if an image may have several labels, or none."""
    thresholds: Sequence[float]
    """The least probability at which each label is accepted, by index; empty with ``multi_label`` means 0.5 for each."""
    reject: bool = False
    """True if an image gets no label when its most probable label does not reach its threshold."""

    def answers(self, probabilities: Tensor, top: int) -> list[Answer]:
        """Return the predictions for probabilities (B, classes), each with the ``top`` most probable labels, best first."""
        best = probabilities.topk(min(top, len(self.labels)), dim=1)
        found = [self._named(*each) for each in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
        if not self.may_tell_none:
            return [Answer(labels, labels[:1]) for labels in found]
        if not self.multi_label:
            enough = best.values[:, 0] >= self.bounds[best.indices[:, 0]]
            return [Answer(labels, labels[: int(known)]) for labels, known in zip(found, enough, strict=True)]
        reached = probabilities >= self.bounds
        return [Answer(labels, self._reached(*each)) for labels, *each in zip(found, probabilities, reached, strict=True)]

    @property
    def may_tell_none(self) -> bool:
        """Return whether an image may have no label."""
        return self.multi_label or self.reject

    def _named(self, indices: list[int], scores: list[float]) -> Labels:
        return [(self.labels[i], score) for i, score in zip(indices, scores, strict=True)]

    def _reached(self, probabilities: Tensor, reached: Tensor) -> Labels:
        order = probabilities.argsort(descending=True, stable=True)
        order = order[reached[order]]
        return self._named(order.tolist(), probabilities[order].tolist())

    @property
    def bounds(self) -> Tensor:
        """Return the threshold of every label, (classes,)."""
        return torch.tensor(self.thresholds or [0.5] * len(self.labels))

    def relabelled(self, data: ImageData, items: list[Item], note: Note = lambda text: None) -> list[Item]:
        """Return the items with the model's label indices: an index of `labels`, or a tuple of indices with ``multi_label``.

        ``note`` receives a line on how the classes were matched; see `match_classes`.

        Raises:
            DataError: the model lacks a class of the data, or the images have several labels but the model predicts one.
        """
        index = match_classes(data.classes, self.labels, where=data.source, aliases=aliases_of(self.labels), note=note)
        if data.multi_label and not self.multi_label:
            raise DataError(
                "the images have several labels each, but the model predicts one",
                where=data.source,
                hint="give images with one label",
            )
        found = [tuple(sorted(index[label] for label in item.labels)) for item in items]
        return [Item(i.name, i.image, own if self.multi_label else own[0]) for i, own in zip(items, found, strict=True)]
