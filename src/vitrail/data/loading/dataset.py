"""Images as samples: decoded once, augmented again in every epoch, stacked into batches."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, get_worker_info

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.decode import Source
from vitrail.data.images.mixing import mix, partners
from vitrail.data.images.plan import Plan
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.reduction import Whole
from vitrail.data.images.transform import Transform, require_sendable, transformed
from vitrail.data.items import Item
from vitrail.data.loading.batches import Batch, Key, Wanted
from vitrail.data.loading.sampler import epoch_order
from vitrail.data.targets import Arrays, ClassIndex, Targets
from vitrail.errors import ConfigError, VitrailError

KEPT_BYTES = 2**30
"""Memory for decoded images of a data set, in all workers together, in bytes."""
UNCHANGED = Augmentation(horizontal_flip=0)


class ImageDataset(Dataset[Batch]):
    """Images prepared for a model. The `Key` of a sample and ``seed`` determine all randomness in it.

    A batch has ``images``, uint8 (B, C, H, W), and the arrays of the targets, by name.

    An image, decoded or at the model's size, stays in memory for later epochs if it needs at most `KEPT_BYTES` divided by the
    number of items. So a data set that fits stays in memory completely, and of a larger one the smaller images do.

    Args:
        items: the images.
        preparation: the resize and crop to the model's size.
        augmentation: random changes; None for none.
        seed: the seed of all randomness.
        targets: a function from an item to its target arrays; by default the index of its class.
        transform: a user's callable that receives the decoded image first. It returns an image, which is augmented and prepared
            as usual, or final pixels (C, H, W) of the model's size, uint8 or floats of 0…1, not normalized, which are only mixed.

    Raises:
        ConfigError: the augmentation mixes images whose targets cannot be mixed, or has settings for boxes of people.
    """

    shows_boxes = False
    """True if items are boxes in images."""

    def __init__(
        self,
        items: Sequence[Item],
        preparation: Preparation,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        *,
        targets: Targets | None = None,
        transform: Transform | None = None,
    ):
        self.items, self.preparation, self.augmentation, self.seed = items, preparation, augmentation or UNCHANGED, seed
        self.targets, self.transform = targets or ClassIndex(), transform
        self._kept: dict[int, tuple[np.ndarray, Any]] = {}
        self._origins: dict[Any, Any] = {}  # equal origins share one object
        self.reading: Any = None
        if self.augmentation.mixes and not self.targets.mixable:
            hint = "leave augmentation.mixup and augmentation.cutmix at 0, or give targets that are fractions of classes"
            raise ConfigError("the images cannot be mixed, since their targets cannot be", where="augmentation", hint=hint)
        if not self.shows_boxes:
            of_boxes = {f"augmentation.{name}": getattr(self.augmentation, name) > 0 for name in ("scale", "half_body")}
            refuse_given("whole images have no boxes", of_boxes)

    def __len__(self) -> int:
        return len(self.items)

    def name(self, number: int) -> str:
        return self.items[number].name

    def require_sendable(self) -> None:
        if self.transform is not None:
            require_sendable(self.transform)

    def count_batches(self, batch_size: int) -> int:
        return -(-len(self) // batch_size)

    def batches(self, epoch: int, batch_size: int, *, shuffle: bool, balance: bool = False) -> list[list[Key]]:
        repeats = self.augmentation.repeats
        order = epoch_order(self.items, self.seed, epoch, shuffle=shuffle, balance=balance, repeats=repeats)
        return [[(epoch, number) for number in order[at : at + batch_size]] for at in range(0, len(order), batch_size)]

    def units(self, keys: Sequence[Key]) -> int:
        return len(keys)

    def __getitem__(self, key: Key) -> Batch:
        return self.batch([key])

    def __getitems__(self, wanted: Wanted) -> Batch | VitrailError:
        try:
            return self.batch(wanted.keys, wanted.own)
        except VitrailError as error:
            return error

    def batch(self, keys: Sequence[Key], own: slice = slice(None)) -> Batch:
        """Return the slice ``own`` of a batch; if the augmentation mixes, samples are mixed with others of the complete batch.

        Raises:
            DataError: an image cannot be read.
            ConfigError: the transform returned an unsupported value.
        """
        mine, a = keys[own], self.augmentation
        others = [keys[place] for place in partners(len(keys), a.repeats)[own]] if a.mixes else []
        randoms = {key: SampleGenerator(self.seed, *key) for key in dict.fromkeys((*mine, *others))}
        samples = {key: self._sample(key[1] % len(self.items), random) for key, random in randoms.items()}
        batch = _stacked([samples[key] for key in mine])
        if others:
            theirs = _stacked([samples[key] for key in others])
            batch = mix(batch, theirs, [randoms[key] for key in mine], mixup=a.mixup, cutmix=a.cutmix)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _sample(self, number: int, random: SampleGenerator) -> Arrays:
        """Return one augmented item; a subclass may add further views, each with a ``random.view`` of its own."""
        pixels, plan = self._planned(number, random)
        return {"images": pixels, **self.targets(self.items[number], plan, random)}

    def _planned(self, number: int, random: SampleGenerator) -> tuple[np.ndarray, Plan | None]:
        """Return the pixels of an augmented item, uint8 (C, H, W), and the plan that maps points and boxes of the upright image.

        The plan is None with a user's transform.
        """
        preparation, augmentation = self.preparation, self.augmentation
        if self.transform is None and augmentation.crop in ("none", "pad"):
            prepared, plan = self._remembered(number, preparation.planned)
            plan = replace(plan, steps=augmentation.steps(preparation, random))
            return plan.changed(prepared), plan
        picture, whole = self._whole(
            number, share=augmentation.min_area if self.transform is None and augmentation.crop == "resized" else None
        )
        if self.transform is None:
            plan = augmentation.plan(picture.size, preparation, random)
            return plan.pixels(picture), plan.of_whole(whole)
        result = transformed(self.transform, picture, preparation, random)
        if isinstance(result, Image.Image):
            result = augmentation.plan(result.size, preparation, random).pixels(result)
        return result, None

    def _whole(self, number: int, *, share: float | None) -> tuple[Image.Image, Whole]:
        """Return the image of an item before its crop, with its geometry; ``share`` as in `Preparation.reduced`."""
        decoded, whole = self._remembered(number, partial(_decoded, self.preparation, share=share))
        return Image.fromarray(decoded), whole

    def _remembered(self, number: int, read: Callable[[Source], tuple[np.ndarray, Any]]) -> tuple[np.ndarray, Any]:
        """Return the result of ``read`` for an item, pixels and their origin, from memory if an earlier epoch read it."""
        kept = self._kept.get(number)
        if kept is None:
            worker = get_worker_info()
            if worker and self.reading:
                self.reading[2 * worker.id : 2 * worker.id + 2] = os.getpid(), number
            pixels, origin = kept = read(self.items[number].image)
            if pixels.nbytes * len(self.items) * (worker.num_workers if worker else 1) <= KEPT_BYTES:
                self._kept[number] = pixels, self._origins.setdefault(origin, origin)
        return kept


class NumberedDataset(ImageDataset):
    """Images with the index of each item, ``number``, int64 (B,)."""

    def _sample(self, number: int, random: SampleGenerator) -> Arrays:
        return {**super()._sample(number, random), "number": np.array(number, np.int64)}


def _decoded(preparation: Preparation, source: Source, *, share: float | None) -> tuple[np.ndarray, Whole]:
    reduced = preparation.reduced(source, share=share)
    return np.asarray(reduced.image), reduced.whole


def _stacked(samples: Sequence[Arrays]) -> dict[str, np.ndarray]:
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
