"""What is learned of an image, as named arrays beside its pixels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vitrail.data.images.plan import Plan
from vitrail.data.items import Item

Arrays = Mapping[str, np.ndarray]


class Targets(Protocol):
    """Makes arrays of an item's target; a batch holds them, stacked, under the same names."""

    @property
    def mixable(self) -> bool:
        """Whether the arrays of two mixed images are the mixture of their arrays."""

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        """The arrays of one item, always of the same names and shapes.

        Points and boxes follow the ``plan`` by which its picture was changed; there is none after a transform of one's own.
        Whatever is random comes from ``random``, the generator of the sample.
        """


@dataclass(frozen=True)
class Nothing:
    """No arrays: nothing is learned of an item, or what is has no fixed shape and is added to whole batches."""

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


def class_targets(classes: int, *, shares: bool) -> Targets:
    """Of classification: shares of classes where an image may show several, or is mixed with another; else an index."""
    return ClassShares(classes) if shares else ClassIndex()
