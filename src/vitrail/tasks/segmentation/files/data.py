"""A data set of images with masks."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitrail.data.images.decode import Source, upright_size
from vitrail.data.items import Contents, ImageData, Item
from vitrail.runtime.observer import Note
from vitrail.tasks.segmentation.files.coding import Coding, Color
from vitrail.tasks.segmentation.files.shapes import Drawing


@dataclass(frozen=True, kw_only=True)
class SegmentationData(ImageData):
    """A data set of images with a mask each; an `Item` has its mask, and no target."""

    coding: Coding

    @property
    def colors(self) -> tuple[Color, ...]:
        """The colour of each class."""
        return self.coding.colors

    @property
    def void(self) -> int:
        """The value of pixels without a class: 255, or 65,535 with more than 255 classes."""
        return self.coding.void

    @property
    def images(self) -> list[Source]:
        return [source for source in super().images if not isinstance(source, Drawing)]

    def identity(self, item: Item) -> Any:
        return (item.name, item.mask.digest) if isinstance(item.mask, Drawing) else super().identity(item)

    @property
    def kind(self) -> dict[str, Any]:
        return {**super().kind, **self.coding.to_json()}

    def mask_of(self, item: Item) -> np.ndarray:
        """Return an item's mask: the indices of classes and void, uint8 or uint16 (H, W); raises `DataError`."""
        return self.coding.mask_of(item, upright_size(item.image))

    def matched(self, labels: list[str], note: Note = lambda text: None) -> "SegmentationData":
        """Return the data with the classes of a model, matched by name; raises `DataError` for a class that it lacks."""
        coding = self.coding.matched(labels, where=self.source, note=note)
        return replace(self, classes=list(labels), coding=coding)

    def __repr__(self) -> str:
        return super().__repr__().replace("ImageData", type(self).__name__)


@dataclass(frozen=True, kw_only=True)
class MaskContents(Contents):
    """The contents of a data set of masks, before it is split."""

    coding: Coding
