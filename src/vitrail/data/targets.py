"""Targets of images: named arrays that accompany the pixels in a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vitrail.data.images.plan import Plan
from vitrail.data.items import Item

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


def class_targets(classes: int, *, shares: bool) -> Targets:
    """Return the targets of classification: with ``shares`` fractions of classes (multi-label or mixed images), else an index."""
    return ClassShares(classes) if shares else ClassIndex()
