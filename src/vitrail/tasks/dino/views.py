"""Several crops of each image, from one decoded image."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.targets import Arrays, Nothing

LARGE = 2
"""Large crops of each image."""
MASKED = (0.1, 0.5)
"""Least and largest fraction of masked patches in a crop that has some."""
BLOCKS = 10
"""Most rectangles of a mask."""
ELONGATED = 10 / 3
"""Largest ratio of a rectangle's sides."""


@dataclass(frozen=True)
class SmallCrops:
    """The small crops of an image: their number, height and width, and the least fraction of its area."""

    count: int
    size: tuple[int, int]
    min_area: float


def mask_blocks(grid: tuple[int, int], count: int, random: np.random.Generator) -> np.ndarray:
    """Draw a mask of ``count`` patches, most of them in rectangles, as BEiT does (Bao et al. 2021): bool (rows, columns)."""
    mask = np.zeros(grid, dtype=bool)
    for _ in range(BLOCKS):
        if (missing := count - mask.sum()) <= 0:
            break
        area, aspect = random.uniform(1, missing + 1), math.exp(random.uniform(-1, 1) * math.log(ELONGATED))
        sides = [min(most, max(1, int(math.sqrt(area * f)))) for most, f in zip(grid, (aspect, 1 / aspect), strict=True)]
        (top, height), (left, width) = ((random.integers(most - side + 1), side) for most, side in zip(grid, sides, strict=True))
        mask[top : top + height, left : left + width] = True
    excess = mask.sum() - count
    changed = random.permutation(np.flatnonzero(mask if excess > 0 else ~mask))[: abs(excess)]
    mask.flat[changed] = excess < 0
    return mask


class CropsDataset(ImageDataset):
    """Two large crops of each image, and some small ones.

    A batch has ``images``, uint8 (B, 2, C, H, W), and ``small``, uint8 (B, N, C, h, w), unless N is 0. Each crop has a plan of
    its own, which its number decides together with (seed, epoch, index). With a ``grid`` of patches a batch has ``masked``, too,
    masks of the large crops, bool (B, 2, patches): half of the crops have 10 to 50 % of their patches masked, as in DINOv2.
    """

    def __init__(
        self,
        items: Sequence[Item],
        preparation: Preparation,
        augmentation: Augmentation,
        seed: int,
        *,
        small: SmallCrops,
        grid: tuple[int, int] | None = None,
    ):
        super().__init__(items, preparation, augmentation, seed, targets=Nothing())
        self._grid = grid
        ratio = small.size[0] / preparation.image_size[0]
        self._share = min(augmentation.min_area, small.min_area / ratio**2)
        """Least fraction of the area that a crop of the large size would have; JPEGs are decoded as large as it needs."""
        smaller = augmentation.changed(min_area=small.min_area, max_area=augmentation.min_area)
        self._kinds = [("images", LARGE, augmentation, preparation)]
        """Name, number, augmentation and preparation of each kind of crop."""
        if small.count:
            self._kinds.append(("small", small.count, smaller, preparation.at(small.size)))

    def _sample(self, number: int, random: SampleGenerator) -> Arrays:
        picture, _ = self._whole(number, share=self._share)
        views: dict[str, np.ndarray] = {}
        drawn = 0
        for name, count, augmentation, preparation in self._kinds:
            numbers = range(drawn, drawn + count)
            plans = [augmentation.plan(picture.size, preparation, random.view(n) if n else random) for n in numbers]
            views[name] = np.stack([plan.pixels(picture) for plan in plans])
            drawn += count
        if self._grid is not None:
            views["masked"] = np.stack([self._mask(self._grid, random.view(drawn + n)) for n in range(LARGE)])
        return views

    @staticmethod
    def _mask(grid: tuple[int, int], random: np.random.Generator) -> np.ndarray:
        """Draw the mask of a large crop, bool (patches,)."""
        fraction = random.uniform(*MASKED) if random.random() < 0.5 else 0.0
        return mask_blocks(grid, round(fraction * grid[0] * grid[1]), random).ravel()
