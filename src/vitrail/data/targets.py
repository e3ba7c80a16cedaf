"""Targets of images: named arrays that accompany the pixels in a batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vitrail.data.images.decode import Source, decode_mask
from vitrail.data.images.plan import Extent, Plan
from vitrail.data.items import Item
from vitrail.errors import ConfigError, DataError

Arrays = Mapping[str, np.ndarray]


class Targets(Protocol):
    """A function from an item to target arrays; a batch holds them, stacked, by the same names."""

    @property
    def mixable(self) -> bool:
        """True if the target of two mixed images is the same mixture of their arrays."""

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        """Return the arrays of one item; names and shapes are the same for all items.

        Points, boxes and masks are transformed by ``plan``, which is None with a user's transform. All randomness comes from
        ``random``, the generator of the sample.
        """


@dataclass(frozen=True)
class Nothing:
    """No target arrays: the task needs none, or adds targets without a fixed shape to complete batches."""

    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        return {}


@dataclass(frozen=True)
class ClassIndex:
    """The index of the class, as ``labels``, int64 ()."""

    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        return {"labels": np.array(item.target, np.int64)}


@dataclass(frozen=True)
class ClassShares:
    """1 for the classes of the image and 0 for others, as ``labels``, float32 (classes,)."""

    classes: int
    mixable = True

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        shares = np.zeros(self.classes, np.float32)
        shares[list(item.labels)] = 1
        return {"labels": shares}


@dataclass(frozen=True)
class Masks:
    """The item's mask, transformed by the plan of its image, as ``masks``, int64 (H, W).

    Raises:
        DataError: as `mask_of` does.
        ConfigError: there is a user's transform, and so no plan.
    """

    fill: int = 255
    """The value of pixels outside of the image: in padding, or next to a rotated image."""
    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        if plan is None:
            raise ConfigError("masks cannot follow a user's transform", where="transform", hint="leave transform out")
        return {"masks": plan.mask(mask_of(item, plan.size), self.fill)}


def mask_of(item: Item, size: Extent, read: Callable[[Source], np.ndarray] = decode_mask) -> np.ndarray:
    """Return an item's mask as ``read`` decodes it, (H, W).

    Args:
        item: the image with its mask.
        size: width and height of the upright image.
        read: the function that decodes the mask.

    Raises:
        DataError: the item has no mask, or the mask cannot be read or has another size than the image.
    """
    if item.mask is None:
        raise DataError("the image has no mask", where=item.name, hint="give the image a mask, or remove it")
    try:
        mask = read(item.mask)
    except DataError as error:
        raise DataError(f"the mask of {item.name}: {error.what}", where=error.where, hint=error.hint) from None
    if mask.shape[::-1] != size:
        (height, width), own = mask.shape, size
        what = f"the mask has {width}×{height} pixels, its image {own[0]}×{own[1]}"
        raise DataError(what, where=item.name, hint="give a mask of the size that the image has after its EXIF rotation")
    return mask


def class_targets(classes: int, *, shares: bool) -> Targets:
    """Return the targets of classification: with ``shares`` fractions of classes (multi-label or mixed images), else an index."""
    return ClassShares(classes) if shares else ClassIndex()
