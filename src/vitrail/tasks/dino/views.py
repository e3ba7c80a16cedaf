"""Several crops of each image, from one decoded image."""

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


@dataclass(frozen=True)
class SmallCrops:
    """The small crops of an image: their number, height and width, and the least fraction of its area."""

    count: int
    size: tuple[int, int]
    min_area: float


class CropsDataset(ImageDataset):
    """Two large crops of each image, and some small ones.

    A batch has ``images``, uint8 (B, 2, C, H, W), and ``small``, uint8 (B, N, C, h, w), unless N is 0. Each crop has a plan of
    its own, which its number decides together with (seed, epoch, index).
    """

    def __init__(
        self, items: Sequence[Item], preparation: Preparation, augmentation: Augmentation, seed: int, *, small: SmallCrops
    ):
        super().__init__(items, preparation, augmentation, seed, targets=Nothing())
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
        return views
