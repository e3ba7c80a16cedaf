"""Copies: which training image is nearest to each sample, and how near training images are to other real images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from vitrail.data.images.plan import to_picture
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.tasks.diffusion.quality.distances import distances

CHUNK = 2_000
"""Training images whose vectors are in memory at once."""
WORST = 32
"""Samples that are shown beside the training image nearest to them."""
Embed = Callable[[Sequence[Any]], np.ndarray]
"""Converts images to the vectors that they are compared by, (N, D)."""


@dataclass(frozen=True)
class Nearest:
    """The training image nearest to each of some images."""

    index: np.ndarray
    """Its index, (N,)."""
    apart: np.ndarray
    """Its distance, (N,)."""

    @property
    def order(self) -> np.ndarray:
        """The images by index, nearest to a training image first."""
        return np.argsort(self.apart, kind="stable")

    def part(self, begin: int, end: int | None) -> "Nearest":
        """Return the same for some of the images."""
        return Nearest(self.index[begin:end], self.apart[begin:end])


def nearest_of(images: np.ndarray, learned: Sequence[Any], embed: Embed) -> Nearest:
    """Return the image of ``learned`` that is nearest to each of ``images`` (N, D); vectors of a chunk are in memory at once."""
    index, apart = np.zeros(len(images), int), np.full(len(images), np.inf)
    for begin in range(0, len(learned), CHUNK):
        between = distances(images, embed(learned[begin : begin + CHUNK]))
        closest = between.min(axis=1)
        index = np.where(closest < apart, begin + between.argmin(axis=1), index)
        apart = np.minimum(apart, closest)
    return Nearest(index, apart)


@dataclass(frozen=True)
class Copies:
    """Samples with the training image that is nearest to each, and the same of real images that were not learned."""

    learned: Sequence[Item]
    samples: Nearest
    held_out: Nearest

    @classmethod
    def search(cls, made: np.ndarray, held_out: Sequence[Item], learned: Sequence[Item], embed: Embed) -> "Copies":
        """Compare the vectors of samples (N, D), and some ``held_out`` images, with all training images."""
        others = embed([item.image for item in held_out])
        both = nearest_of(np.concatenate([made, others]), [item.image for item in learned], embed)
        return cls(learned, both.part(0, len(made)), both.part(len(made), None))

    @property
    def ratio(self) -> float:
        """The median distance of samples over that of held-out images; well below 1 are copies."""
        usual = float(np.median(self.held_out.apart))
        return float(np.median(self.samples.apart)) / usual if usual else float("inf")

    def worst(self) -> Iterator[tuple[int, Item, float]]:
        """Yield the samples nearest to a training image: the sample's number, the image and the distance; the nearest first."""
        for number in self.samples.order[:WORST].tolist():
            yield number, self.learned[self.samples.index[number]], float(self.samples.apart[number])

    def pairs(self, pictures: Sequence[Image.Image], preparation: Preparation) -> list[Image.Image]:
        """Return the worst samples, each followed by the training image that is nearest to it."""
        pairs = ((pictures[number], to_picture(preparation.pixels(item.image))) for number, item, _ in self.worst())
        return [picture for pair in pairs for picture in pair]
