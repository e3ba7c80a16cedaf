"""Images with masks as samples: random crops to learn from, and whole images to evaluate."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from PIL import Image

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation, SampleGenerator, scaled_crop
from vitrail.data.images.decode import upright_size
from vitrail.data.images.plan import Extent, Frame, Plan, to_pixels
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.batches import Key
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.targets import Arrays, Nothing
from vitrail.tasks.segmentation.files.coding import Coding

LARGEST_CLASS, TRIES = 0.75, 10
"""Largest fraction of a crop's known pixels that one class may have, and the number of crops that are drawn to get it."""


class SegmentationDataset(ImageDataset):
    """Images and their masks.

    A batch has ``images``, uint8 (B, C, H, W); ``masks``, int64 (B, H, W), class indices and void; ``number``, the index of each
    item, and ``sizes``, the height and width of each image, int64 (B,) and (B, 2).

    To learn from, an image is scaled at random, by the augmentation's crop "scaled", and a crop of the model's size is taken:
    its aspect stays the same, and padding is void. A crop that shows little but one class is drawn again. Otherwise the images
    keep their own size, and the images of a batch have one size. Masks are decoded anew each time, and do not stay in memory.

    Args:
        items: the images, with a mask each.
        preparation: has the model's size and colours.
        coding: the classes, and their values in the masks.
        augmentation: random changes of crops; None for whole images.
        seed: the seed of all randomness.

    Raises:
        ConfigError: the augmentation mixes images, or has another crop.
    """

    def __init__(
        self,
        items: Sequence[Item],
        preparation: Preparation,
        coding: Coding,
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ):
        super().__init__(items, preparation, augmentation, seed, targets=Nothing())
        other = self.augmentation.crop not in ("none", "scaled")
        refuse_given("images with masks are not squeezed; take scaled", {"augmentation.crop": other})
        self.coding, self.crops = coding, augmentation is not None

    def count_batches(self, batch_size: int) -> int:
        return super().count_batches(batch_size) if self.crops else len(self.batches(0, batch_size, shuffle=False))

    def batches(self, epoch: int, batch_size: int, *, shuffle: bool, balance: bool = False) -> list[list[Key]]:
        """Return the keys of an epoch's batches; whole images come by size, at most as many pixels as in a batch of crops."""
        if self.crops:
            return super().batches(epoch, batch_size, shuffle=shuffle, balance=balance)
        room, found = batch_size * int(np.prod(self.preparation.image_size)), []
        for (width, height), numbers in self._by_size.items():
            count = min(batch_size, max(1, room // (width * height)))
            found += [[(epoch, number) for number in numbers[at : at + count]] for at in range(0, len(numbers), count)]
        return found

    @cached_property
    def _by_size(self) -> dict[Extent, list[int]]:
        """The indices of the images of each width and height."""
        found: dict[Extent, list[int]] = {}
        for number, item in enumerate(self.items):
            found.setdefault(upright_size(item.image), []).append(number)
        return found

    def _sample(self, number: int, random: SampleGenerator) -> Arrays:
        decoded, _ = self._remembered(number, lambda source: (np.asarray(self.preparation.decode(source)), None))
        picture = Image.fromarray(decoded)
        mask = self.coding.mask_of(self.items[number], picture.size)
        if self.crops:
            frame = self._frame(mask, random)
            plan = Plan(picture.size, frame, self.augmentation.steps(self.preparation, random))
            pixels, mask = plan.pixels(picture), plan.mask(mask, self.coding.void)
        else:
            pixels = to_pixels(picture)
        numbers = {"number": np.array(number, np.int64), "sizes": np.array(pixels.shape[1:], np.int64)}
        return {"images": pixels, "masks": mask.astype(np.int64, copy=False), **numbers}

    def _frame(self, mask: np.ndarray, random: SampleGenerator) -> Frame:
        """Draw a crop in which no class fills more than `LARGEST_CLASS`; after `TRIES` crops the last one is taken."""
        size = mask.shape[1], mask.shape[0]
        for _ in range(TRIES):
            frame = self._drawn(size, random)
            if not _is_filled(Plan(size, frame).mask(mask, self.coding.void), self.coding.void):
                break
        return frame

    def _drawn(self, size: Extent, random: SampleGenerator) -> Frame:
        if self.augmentation.crop == "scaled":
            return self.augmentation.frame(size, self.preparation, random)
        return scaled_crop(size, self.preparation, 1.0, random)


def _is_filled(mask: np.ndarray, void: int) -> bool:
    """Return whether one class has more than `LARGEST_CLASS` of a mask's known pixels, or none is known."""
    counts = np.bincount(mask.ravel(), minlength=void + 1)
    counts[void] = 0
    return bool(counts.max() > LARGEST_CLASS * counts.sum() or not counts.any())
