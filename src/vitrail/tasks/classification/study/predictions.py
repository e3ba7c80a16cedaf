"""A model's predictions for the images of a split, and sheets with selected images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.data.images.plan import to_pixels
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import Item
from vitrail.study.maps.attention import look_of, reading_map
from vitrail.study.maps.captures import hides
from vitrail.study.maps.patch_coordinates import Places, patch_places
from vitrail.study.page import figures
from vitrail.study.page.images import overlay
from vitrail.study.page.report_part import SPLIT_WORDS
from vitrail.study.sections.study_images import Subjects
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.weights.model_folder.folder import TrainedModel

SHEET = 24
"""Number of images on a sheet."""


@dataclass(frozen=True)
class Predictions:
    """The images of a split, in their order, with the model's predictions and their scores."""

    classes: list[str]
    split: str
    items: list[Item]
    preparation: Preparation
    probabilities: np.ndarray
    """Probabilities (N, classes), in the order of ``items``."""
    scores: dict[str, float | int]
    thresholds: Sequence[float] = ()
    """Thresholds of a multi-label model."""
    look: Callable[[Tensor], Tensor] | None = None
    """A function from prepared pixels of one image (1, C, H, W) to its attention map (rows, columns); None if there is none."""
    places: Places | None = None
    """The image coordinates of the attention map."""

    @classmethod
    def of(cls, trained: TrainedModel, subjects: Subjects, metrics: LabelMetrics) -> Self:
        chances = metrics.probabilities.numpy()
        look = None if hides(trained.model) else look_of(trained, reading_map)[0]
        images = subjects.split, subjects.items, trained.preparation
        places = None if look is None else patch_places(trained.model)
        return cls(trained.labels, *images, chances, metrics.scores(), trained.thresholds, look, places)

    @property
    def images(self) -> str:
        return f"{len(self.items):,} {SPLIT_WORDS[self.split]}images"

    @property
    def multi_label(self) -> bool:
        return isinstance(self.items[0].target, tuple)

    def caption(self, image: int, index: int) -> str:
        return f"{figures.readable(self.classes[index])} ({100 * self.probabilities[image, index]:.0f} %)"

    def save_sheet(self, file: Path, captions: dict[int, str], *, correct: bool) -> None:
        """Draw images (keys of ``captions``) as the model sees them, with captions and file names; nothing without captions.

        Next to a wrong prediction is the image with the model's attention.
        """
        if captions:
            shown = [self._shown(self.items[image], looked=not correct) for image in captions]
            names = [figures.short_path(self.items[image].name) for image in captions]
            paired = self.look is not None and not correct
            sheet = figures.examples(shown, list(captions.values()), [correct] * len(shown), names, columns=3 if paired else 6)
            figures.save(sheet, file)

    def _shown(self, item: Item, *, looked: bool) -> Image.Image:
        """Return an image as the model sees it, with ``looked`` next to a copy with the model's attention."""
        picture = self.preparation.crop(self.preparation.decode(item.image))
        if self.look is None or self.places is None or not looked:
            return picture
        heat = self.look(torch.from_numpy(to_pixels(picture))[None]).numpy()
        pair = Image.new("RGB", (2 * picture.width, picture.height))
        pair.paste(picture, (0, 0))
        pair.paste(overlay(picture, heat, *self.places.within((0, 0, *picture.size))), (picture.width, 0))
        return pair

    @property
    def looks(self) -> str:
        """The end of a caption, which explains the attention next to a wrong prediction."""
        return "" if self.look is None else " Beside it, glowing, where the model looked: the last attention before its answer."
