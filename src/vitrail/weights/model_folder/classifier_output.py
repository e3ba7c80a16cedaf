"""Labels of a model's output, and thresholds that decide which are given."""

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
    """So many of the best as were asked for."""
    accepted: Labels
    """The labels that count: the surest, or where there may be several all that reach their thresholds, possibly none.

    Of a model that rejects, none where the surest label does not reach its threshold.
    """

    def to_json(self, image: str, *, several: bool) -> dict[str, Any]:
        """Return the answer for a program; accepted labels are listed where there may be ``several`` labels, or none."""
        best = {"image": image, "predictions": [{"label": label, "score": score} for label, score in self.best]}
        return {**best, "labels": [label for label, _ in self.accepted]} if several else best


class Labelled:
    """Whatever answers with labels: a model in Python, or one behind an engine."""

    labels: list[str]
    """A name for every logit, by index; none for a model that gives vectors."""
    multi_label: bool
    """True where an image may have several labels, or none."""
    thresholds: Sequence[float]
    """The least probability of each accepted label, by index; where there may be several, none for one half each."""
    reject: bool = False
    """True where an image has no label if its surest one does not reach its threshold."""

    def answers(self, probabilities: Tensor, top: int) -> list[Answer]:
        """Return answers for probabilities (B, classes), with the ``top`` labels of each image, best first."""
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
        """Return items of some data with the model's own labels: an index of `labels`, or a tuple of them if it gives several.

        How their classes were matched goes to ``note``, see `match_classes`.

        Raises:
            DataError: a class of the data is none of the model's, or images have several labels where the model gives one.
        """
        index = match_classes(data.classes, self.labels, where=data.source, aliases=aliases_of(self.labels), note=note)
        if data.multi_label and not self.multi_label:
            raise DataError(
                "the images have several labels each, the model gives one", where=data.source, hint="give images with one label"
            )
        found = [tuple(sorted(index[label] for label in item.labels)) for item in items]
        return [Item(i.name, i.image, own if self.multi_label else own[0]) for i, own in zip(items, found, strict=True)]
