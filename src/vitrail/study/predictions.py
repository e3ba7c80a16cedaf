"""A model's predictions for the images of a split, and sheets of the most telling ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from vitrail.data.preparation import Preparation
from vitrail.data.sources import Item
from vitrail.study import figures
from vitrail.study.reports.part import SPLIT_WORDS
from vitrail.study.subjects import Subjects
from vitrail.tasks.classification import LabelMetrics
from vitrail.weights.folder import TrainedModel

SHEET = 24
"""Pictures on a sheet."""


@dataclass(frozen=True)
class Predictions:
    """The images of a split, in their order, with the model's predictions and their scores."""

    classes: list[str]
    split: str
    items: list[Item]
    preparation: Preparation
    probabilities: np.ndarray
    """(N, classes), in the order of ``items``."""
    scores: dict[str, float | int]
    thresholds: Sequence[float] = ()
    """Of several labels, the model's own."""

    @classmethod
    def of(cls, trained: TrainedModel, subjects: Subjects, metrics: LabelMetrics) -> Self:
        """A model's predictions for the images of a study."""
        chances = metrics.probabilities.numpy()
        return cls(
            trained.labels, subjects.split, subjects.items, trained.preparation, chances, metrics.scores(), trained.thresholds
        )

    @property
    def images(self) -> str:
        """How many images of which split, in words."""
        return f"{len(self.items):,} {SPLIT_WORDS[self.split]}images"

    @property
    def multi_label(self) -> bool:
        """Whether an image may show several classes, or none."""
        return isinstance(self.items[0].target, tuple)

    def caption(self, image: int, index: int) -> str:
        """A class and its probability, short enough to stand above a picture."""
        return f"{figures.short(self.classes[index])} ({100 * self.probabilities[image, index]:.0f} %)"

    def save_sheet(self, file: Path, captions: dict[int, str], *, correct: bool) -> None:
        """Draw images, by their index, as the model sees them, with their captions; without captions no file is written."""
        if captions:
            prepare = self.preparation
            images = [prepare.crop(prepare.decode(self.items[image].image)) for image in captions]
            figures.save(figures.examples(images, list(captions.values()), [correct] * len(captions)), file)
