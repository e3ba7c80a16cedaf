"""Images to batches: the same batches whatever the number of workers."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import RawArray
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from vitrail.data.augment import Augmentation, sample_generator
from vitrail.data.decode import Source
from vitrail.data.items import Item
from vitrail.data.mixing import mix, partners
from vitrail.data.order import epoch_order
from vitrail.data.preparation import Preparation
from vitrail.data.targets import Arrays, ClassIndex, Targets
from vitrail.data.transform import Transform, require_sendable, transformed
from vitrail.errors import ConfigError, DataError, VitrailError

Batch = dict[str, Tensor]
"""``images``, uint8 (B, C, H, W), and beside them what the data set's targets make of the items, by name."""
Key = tuple[int, int]
"""An epoch and the number of a sample in it; see `epoch_order`."""


@dataclass(frozen=True)
class Wanted:
    """A batch, and the part of it that this process is to have."""

    keys: list[Key]
    own: slice


KEPT_BYTES = 2**30
"""Memory for the pictures of a data set, in all workers together."""
UNCHANGED = Augmentation(horizontal_flip=0)
STOPPING = (signal.SIGINT, signal.SIGTERM)


class ImageDataset(Dataset[Batch]):
    """Items prepared for a model. A sample is asked for by its `Key`, which with ``seed`` fixes all that is random in it.

    What is the same in every epoch, the picture decoded or at the model's size, is kept in memory for the next one if it
    takes no more than an item's even share of `KEPT_BYTES`: all images of a data set that fits, else its smaller ones.

    Args:
        items: the images.
        preparation: brings them to the model's size.
        augmentation: changes them at random; None changes nothing.
        seed: of all that is random.
        targets: what is learned of an item, beside its image; the index of its class by default.
        transform: a callable of one's own that takes the decoded picture before anything else. It returns a picture, which
            goes on as any other, or pixels (C, H, W) of the model's size, uint8 or floating-point of 0…1 and not
            normalised, which are only mixed.

    Raises:
        ConfigError: images are to be mixed, and their targets cannot be.
    """

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
        self._kept: dict[int, np.ndarray] = {}
        self.reading: Any = None
        """What every worker is at: two numbers each, that of its process and that of the item, where there are workers."""
        if self.augmentation.mixes and not self.targets.mixable:
            hint = "leave augmentation.mixup and augmentation.cutmix at 0, or give targets that are shares of classes"
            raise ConfigError("images cannot be mixed whose targets cannot be mixed", where="augmentation", hint=hint)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, key: Key) -> Batch:
        """One sample, as a batch of its own."""
        return self.batch([key])

    def __getitems__(self, wanted: Wanted) -> Batch | VitrailError:
        """A batch for torch's loader, which asks for all of it at once.

        An error is returned, not raised: a worker would wrap it in its own traceback.
        """
        try:
            return self.batch(wanted.keys, wanted.own)
        except VitrailError as error:
            return error

    def batch(self, keys: Sequence[Key], own: slice = slice(None)) -> Batch:
        """The samples ``own`` of a batch side by side, mixed with others of the batch where the augmentation says so.

        Raises:
            DataError: an image cannot be read.
            ConfigError: the transform returned something else than it may.
        """
        mine, a = keys[own], self.augmentation
        others = [keys[place] for place in partners(len(keys), a.repeats)[own]] if a.mixes else []
        randoms = {key: sample_generator(self.seed, *key) for key in dict.fromkeys((*mine, *others))}
        samples = {key: self._sample(key[1] % len(self.items), random) for key, random in randoms.items()}
        batch = _stacked([samples[key] for key in mine])
        if others:
            theirs = _stacked([samples[key] for key in others])
            batch = mix(batch, theirs, [randoms[key] for key in mine], mixup=a.mixup, cutmix=a.cutmix)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _sample(self, number: int, random: np.random.Generator) -> Arrays:
        """One item, changed at random."""
        return {"images": self._pixels(number, random), **self.targets(self.items[number])}

    def _pixels(self, number: int, random: np.random.Generator) -> np.ndarray:
        """One item, changed at random: uint8 (C, H, W)."""
        preparation, augmentation = self.preparation, self.augmentation
        if self.transform is None and augmentation.crop != "resized":
            return augmentation.changed_pixels(self._remembered(number, preparation.pixels), preparation, random)
        share = augmentation.min_area if self.transform is None else None
        picture = Image.fromarray(self._remembered(number, lambda source: np.asarray(preparation.decode(source, share=share))))
        result = picture if self.transform is None else transformed(self.transform, picture, preparation, random)
        return result if isinstance(result, np.ndarray) else augmentation.pixels(result, preparation, random)

    def _remembered(self, number: int, read: Callable[[Source], np.ndarray]) -> np.ndarray:
        """What ``read`` made of an item, now or in an earlier epoch."""
        pixels = self._kept.get(number)
        if pixels is None:
            worker = get_worker_info()
            if worker and self.reading:
                self.reading[2 * worker.id : 2 * worker.id + 2] = os.getpid(), number
            pixels = read(self.items[number].image)
            if pixels.nbytes * len(self.items) * (worker.num_workers if worker else 1) <= KEPT_BYTES:
                self._kept[number] = pixels
        return pixels


class EpochLoader:
    """Batches of one epoch after another from one set of workers, or one process's part of each.

    Args:
        dataset: what to load.
        batch_size: images per batch; the last batch of an epoch may be smaller.
        shuffle: whether each epoch has its own order, by the data set's seed.
        workers: processes that prepare images; 0 prepares them in this one.
        balance: whether an epoch shows every class equally often; see `epoch_order`.
        part: which of how many equal parts of every batch to load, counted from 0.

    Raises:
        ConfigError: the data set's transform cannot be sent to workers.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        batch_size: int,
        *,
        shuffle: bool,
        workers: int = 0,
        balance: bool = False,
        part: tuple[int, int] = (0, 1),
    ):
        self.dataset, self.batch_size, self.shuffle, self.balance, self.part = dataset, batch_size, shuffle, balance, part
        if workers and dataset.transform is not None:
            require_sendable(dataset.transform)
        if workers:
            dataset.reading = RawArray("q", 2 * workers)
        self._following = _Following()
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._following,
            num_workers=workers,
            generator=torch.Generator(),
            collate_fn=_as_it_is,
            persistent_workers=workers > 0,
            worker_init_fn=_patient,
        )

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def size(self, batch: int) -> int:
        """Images in a batch, all its parts together."""
        return min(self.batch_size, len(self.dataset) - batch * self.batch_size)

    def places(self, batch: int) -> range:
        """The places in the batch that this part of it has: none, where there are more parts than images."""
        part, parts = self.part
        return range(self.size(batch) * part // parts, self.size(batch) * (part + 1) // parts)

    def epoch(self, epoch: int = 0, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, without the first ``skip``; a part of a batch that has no image gets its first.

        Raises:
            DataError: an image cannot be read, or a worker died over it.
            ConfigError: the data set's transform returned something else than it may.
        """
        data = self.dataset
        order = epoch_order(
            data.items, data.seed, epoch, shuffle=self.shuffle, balance=self.balance, repeats=data.augmentation.repeats
        )
        keys = [(epoch, number) for number in order]
        self._following.batches = []
        for number in range(skip, len(self)):
            places, start = self.places(number) or range(1), number * self.batch_size
            own = slice(places.start, places.stop)
            self._following.batches.append(Wanted(keys[start : start + self.batch_size], own))
        for batch in self._batches():
            if isinstance(batch, VitrailError):
                try:
                    raise batch
                finally:
                    del batch  # else its traceback would hold it, and with it the workers
            yield batch

    def close(self) -> None:
        """End the workers; another epoch would start new ones.

        Without it they end with the loader, which can take seconds where an error's traceback still holds it.
        """
        iterator: Any = self._loader._iterator
        self._loader._iterator = None
        if iterator is not None:
            iterator._shutdown_workers()

    def _batches(self) -> Iterator[Batch | VitrailError]:
        try:
            yield from self._iterator()
        except (RuntimeError, OSError, EOFError) as error:  # what a worker's end looks like depends on what it was at
            time.sleep(0.1)  # until the system knows of it
            self._require_alive(error)
            raise

    def _iterator(self) -> Iterator[Any]:
        """That of torch's loader, without its handler of SIGCHLD, which would raise in the middle of anything."""
        heard = self._loader.num_workers and hasattr(signal, "SIGCHLD")
        if not heard or threading.current_thread() is not threading.main_thread():
            return iter(self._loader)
        before, open_to = signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            return iter(self._loader)  # workers begin deaf, as this thread is here, until they are `_patient`
        finally:
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, open_to)

    def _require_alive(self, error: Exception) -> None:
        """Say of workers that are no more which images they were at, which is all that is known of it."""
        reading = list(self.dataset.reading or ())
        alive = {process.pid for process in multiprocessing.active_children()}
        dead = [number for process, number in zip(reading[::2], reading[1::2], strict=True) if process and process not in alive]
        if dead or "exited unexpectedly" in str(error):
            self.close()
            raise DataError(
                "a process that prepares images was killed",
                where=", ".join(self.dataset.items[number].name for number in dead) or "before its first image",
                hint="if memory was short, take fewer --data.workers; else the image it was at may crash its reader: remove it",
            ) from None


class _Following:
    """The batch sampler that torch's loader asks at the start of every epoch."""

    def __init__(self) -> None:
        self.batches: list[Wanted] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _stacked(samples: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """The arrays of some samples, side by side."""
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


def _as_it_is(batch: Any) -> Any:
    return batch


def _patient(worker: int) -> None:
    """A terminal's Ctrl-C and a cluster's SIGTERM reach every process; when a worker ends is for the one it works for."""

    first: list[float] = []

    def once(number: int, frame: FrameType | None) -> None:
        if first and time.monotonic() - first[0] > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        first.append(time.monotonic())

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, once)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
