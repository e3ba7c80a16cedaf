"""Targets of images: named arrays beside their pixels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vitrail.data.images.decode import decode_mask
from vitrail.data.images.plan import Plan
from vitrail.data.items import Item
from vitrail.errors import ConfigError, DataError

Arrays = Mapping[str, np.ndarray]


class Targets(Protocol):
    """Makes arrays of an item's target; a batch holds them, stacked, under the same names."""

    @property
    def mixable(self) -> bool:
        """True if the arrays of two mixed images are the mixture of their arrays."""

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        """Return the arrays of one item, always of the same names and shapes.

        Points, boxes and masks follow the ``plan`` of the image, which is None after a transform of the user's own. All
        randomness comes from ``random``, the generator of the sample.
        """


@dataclass(frozen=True)
class Nothing:
    """No arrays: nothing is learned of an item, or it has no fixed shape and is added to whole batches."""

    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        return {}


@dataclass(frozen=True)
class ClassIndex:
    """The index of the class: ``labels``, int64 ()."""

    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        return {"labels": np.array(item.target, np.int64)}


@dataclass(frozen=True)
class ClassShares:
    """1 for the classes of the image, else 0: ``labels``, float32 (classes,)."""

    classes: int
    mixable = True

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        shares = np.zeros(self.classes, np.float32)
        shares[list(item.labels)] = 1
        return {"labels": shares}


@dataclass(frozen=True)
class Masks:
    """The item's mask, moved by the plan of its image: ``masks``, int64 (H, W).

    Raises:
        DataError: the item has no mask, or one of another size than its image, or one that cannot be read.
        ConfigError: a transform of the user's own left no plan.
    """

    fill: int = 255
    """The value of pixels where there is no image: in a padding, or beside an image that was turned."""
    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        if plan is None:
            raise ConfigError("masks cannot follow a transform of one's own", where="transform", hint="leave transform out")
        if item.mask is None:
            raise DataError("the image has no mask", where=item.name, hint="give it one, or leave it out")
        try:
            mask = decode_mask(item.mask)
        except DataError as error:
            raise DataError(f"the mask of {item.name}: {error.what}", where=error.where, hint=error.hint) from None
        if mask.shape[::-1] != plan.size:
            (height, width), own = mask.shape, plan.size
            what = f"the mask has {width}×{height} pixels, its image {own[0]}×{own[1]}"
            raise DataError(what, where=item.name, hint="give a mask of the image's size, turned as EXIF turns the image")
        return {"masks": plan.mask(mask, self.fill)}


def class_targets(classes: int, *, shares: bool) -> Targets:
    """Return the targets of classification: fractions of classes where images show several or are mixed, else an index."""
    return ClassShares(classes) if shares else ClassIndex()
