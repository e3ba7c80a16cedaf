"""Images to batches: the same batches whatever the number of workers."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitrail.data.augment import Augmentation, sample_generator
from vitrail.data.preparation import Preparation
from vitrail.data.sources import Item
from vitrail.errors import DataError

Batch = tuple[Tensor, Tensor]
"""uint8 images (B, C, H, W) and int64 labels (B,)."""
Sample = tuple[np.ndarray, int]
"""uint8 image (C, H, W) and label."""


class ImageDataset(Dataset[Sample | DataError]):
    """Items prepared for a model. An element is asked for by (epoch, index), which with ``seed`` fixes its augmentation."""

    def __init__(self, items: list[Item], preparation: Preparation, augmentation: Augmentation | None = None, seed: int = 0):
        self.items, self.preparation, self.augmentation, self.seed = items, preparation, augmentation, seed

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, key: tuple[int, int]) -> Sample | DataError:
        epoch, index = key
        item = self.items[index]
        try:
            if self.augmentation is None:
                return self.preparation.pixels(item.image), item.label
            image = self.preparation.decode(item.image)
            random = sample_generator(self.seed, epoch, index)
            return self.augmentation.pixels(image, self.preparation, random), item.label
        except DataError as error:
            return error  # not raised here: a worker would wrap it in its own traceback


ORDER = 1  # tells this randomness from that of samples


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """The order of an epoch's samples."""
    return np.random.default_rng((ORDER, seed, epoch)).permutation(count).tolist()


class EpochLoader:
    """Batches of one epoch after another from one set of workers.

    Args:
        dataset: what to load.
        batch_size: images per batch; the last batch of an epoch may be smaller.
        shuffle: whether each epoch has its own order, by the data set's seed.
        workers: processes that prepare images; 0 prepares them in this one.
    """

    def __init__(self, dataset: ImageDataset, batch_size: int, *, shuffle: bool, workers: int = 0):
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self._following = _Following()
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._following,
            num_workers=workers,
            generator=torch.Generator(),
            collate_fn=_collate,
            persistent_workers=workers > 0,
        )

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def epoch(self, epoch: int = 0, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, without the first ``skip``; raises `DataError` for an image that cannot be read."""
        count = len(self.dataset)
        order = shuffled(count, self.dataset.seed, epoch) if self.shuffle else list(range(count))
        keys = [(epoch, index) for index in order]
        self._following.batches = [keys[i : i + self.batch_size] for i in range(0, count, self.batch_size)][skip:]
        for batch in self._loader:
            if isinstance(batch, DataError):
                raise batch
            yield batch


class _Following:
    """The batch sampler that torch's loader asks at the start of every epoch."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int]]] = []

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _collate(loaded: list[Sample | DataError]) -> Batch | DataError:
    pixels, labels = [], []
    for sample in loaded:
        if isinstance(sample, DataError):
            return sample
        pixels.append(sample[0])
        labels.append(sample[1])
    return torch.from_numpy(np.stack(pixels)), torch.tensor(labels)
