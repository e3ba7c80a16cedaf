"""The predicted labels of an image, as JSON, as a row of a table, and as a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from vitrail.data.items import Item
from vitrail.data.tables.several_labels import SEPARATOR
from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row
from vitrail.weights.model_folder import classifier_output
from vitrail.weights.model_folder.classifier_output import Labelled, Labels

MOST = 5
"""Number of labels of each image in the table of an evaluation."""


@dataclass(frozen=True)
class LabelAnswer(Answer):
    """The predicted labels of an image, with their probabilities."""

    best: Labels
    """The best labels, as many as requested."""
    accepted: Labels
    """The most probable label; of a multi-label model all labels that reach their thresholds. Empty for a rejected image."""
    multi_label: bool
    """True if an image may have several labels, or none."""
    reject: bool
    shows_accepted: bool = False
    """True if the printed line shows ``accepted`` instead of ``best``."""

    @classmethod
    def of(cls, model: Labelled, answer: classifier_output.Answer, *, shows_accepted: bool = False) -> Self:
        """Create the prediction from the output of `Labelled.answers`."""
        return cls(answer.best, answer.accepted, model.multi_label, model.reject, shows_accepted)

    def to_json(self, name: str) -> dict[str, Any]:
        answer = classifier_output.Answer(self.best, self.accepted)
        return answer.to_json(name, several=self.multi_label or self.reject)

    def rows(self) -> list[Row]:
        if self.multi_label:
            return [
                [SEPARATOR.join(label for label, _ in self.accepted), SEPARATOR.join(_score(score) for _, score in self.accepted)]
            ]
        accepted = ["yes" if self.accepted else "no"] * self.reject
        return [[*accepted, *(cell for label, score in self.best for cell in (label, _score(score)))]]

    def lines(self) -> list[str]:
        labels = self.accepted if self.shows_accepted else self.best
        words = ", ".join(f"{label} {100 * score:.1f} %" for label, score in labels) or "none"
        return [words if self.accepted or self.shows_accepted else f"none of these ({words})"]


def head_of(model: Labelled, top: int) -> Row:
    """Return the column names of `LabelAnswer.rows` for ``top`` labels per image."""
    if model.multi_label:
        return ["labels", "scores"]
    count, accepted = min(top, len(model.labels)), ["accepted"] * model.reject
    return [*accepted, "label", "score", *(f"{name}_{place}" for place in range(2, count + 1) for name in ("label", "score"))]


def evaluated_rows(model: Labelled, items: Sequence[Item], probabilities: Tensor) -> list[Row]:
    """Return a header, and a row for each image: its true labels, the prediction, and whether it is correct.

    ``probabilities`` are (N, classes), in the order of the items.
    """
    head, own = head_of(model, MOST), 2
    table = [["image", "true_labels" if model.multi_label else "true_label", *head[:own], "correct", *head[own:]]]
    for item, answer in zip(items, model.answers(probabilities, MOST), strict=True):
        true, (row,) = [model.labels[label] for label in item.labels], LabelAnswer.of(model, answer).rows()
        correct = "yes" if set(true) == {label for label, _ in answer.accepted} else "no"
        table.append([item.name, SEPARATOR.join(true), *row[:own], correct, *row[own:]])
    return table


def _score(score: float) -> str:
    return f"{score:.6f}"
