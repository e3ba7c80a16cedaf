"""Images to batches: the same batches whatever the number of workers."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import RawArray
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from vitrail.data.augment import Augmentation, sample_generator
from vitrail.data.decode import Source, Whole
from vitrail.data.items import Item
from vitrail.data.mixing import mix, partners
from vitrail.data.order import epoch_order
from vitrail.data.plan import Plan
from vitrail.data.preparation import Preparation
from vitrail.data.transform import Transform, require_sendable, transformed
from vitrail.errors import ConfigError, DataError, VitrailError

Batch = tuple[Tensor, Tensor]
"""uint8 images (B, C, H, W) and their targets: int64 (B,), or float32 (B, classes) in multi-label data or where images
are mixed."""
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
        classes: how many there are; needed where targets are shares of classes.
        multi_label: whether an image may show several classes, or none.
        transform: a callable of one's own that takes the decoded picture before anything else. It returns a picture, which
            goes on as any other, or pixels (C, H, W) of the model's size, uint8 or floating-point of 0…1 and not
            normalised, which are only mixed.

    Raises:
        ConfigError: ``classes`` is missing.
    """

    def __init__(
        self,
        items: Sequence[Item],
        preparation: Preparation,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        *,
        classes: int | None = None,
        multi_label: bool = False,
        transform: Transform | None = None,
    ):
        self.items, self.preparation, self.augmentation, self.seed = items, preparation, augmentation or UNCHANGED, seed
        self.classes, self.multi_label, self.transform = classes, multi_label, transform
        self._kept: dict[int, tuple[np.ndarray, Any]] = {}
        self._origins: dict[Any, Any] = {}
        """One for all pictures of a size."""
        self.reading: Any = None
        """What every worker is at: two numbers each, that of its process and that of the item, where there are workers."""
        if self.has_shares and classes is None:
            raise ConfigError("targets are shares of classes, and nobody said of how many", where="classes", hint="give classes")

    def __len__(self) -> int:
        return len(self.items)

    @property
    def has_shares(self) -> bool:
        """Whether targets are float32 (B, classes)."""
        return self.multi_label or self.augmentation.mixes

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
        samples = {key: self._pixels(key[1] % len(self.items), random) for key, random in randoms.items()}
        pixels, items = self._side_by_side(samples, mine)
        if not self.has_shares:
            return torch.from_numpy(pixels), torch.tensor([item.label for item in items])
        targets = self._shares(items)
        if others:
            other_pixels, other_items = self._side_by_side(samples, others)
            theirs = other_pixels, self._shares(other_items)
            pixels, targets = mix(pixels, targets, theirs, [randoms[key] for key in mine], mixup=a.mixup, cutmix=a.cutmix)
        return torch.from_numpy(pixels), torch.from_numpy(targets)

    def _side_by_side(self, samples: dict[Key, np.ndarray], keys: Sequence[Key]) -> tuple[np.ndarray, list[Item]]:
        return np.stack([samples[key] for key in keys]), [self.items[number % len(self.items)] for _, number in keys]

    def _shares(self, items: Sequence[Item]) -> np.ndarray:
        """1 at the classes of every item, else 0: float32 (B, classes)."""
        shares = np.zeros((len(items), self.classes or 0), np.float32)
        for row, item in zip(shares, items, strict=True):
            row[list(item.labels)] = 1
        return shares

    def _pixels(self, number: int, random: np.random.Generator) -> np.ndarray:
        """One item, changed at random: uint8 (C, H, W)."""
        return self._planned(number, random)[0]

    def _planned(self, number: int, random: np.random.Generator) -> tuple[np.ndarray, Plan | None]:
        """One item, changed at random, and the plan of it, for what belongs to the upright picture of all its pixels.

        There is no plan where a transform of one's own did something first.
        """
        preparation, augmentation = self.preparation, self.augmentation
        if self.transform is None and augmentation.crop != "resized":
            prepared, plan = self._remembered(number, preparation.planned)
            plan = plan.with_steps(augmentation.steps(preparation, random))
            return plan.changed(prepared), plan
        share = augmentation.min_area if self.transform is None else None
        decoded, whole = self._remembered(number, partial(_decoded, preparation, share=share))
        picture = Image.fromarray(decoded)
        if self.transform is None:
            plan = augmentation.plan(picture.size, preparation, random)
            return plan.pixels(picture), plan.of_whole(whole)
        result = transformed(self.transform, picture, preparation, random)
        if isinstance(result, Image.Image):
            result = augmentation.plan(result.size, preparation, random).pixels(result)
        return result, None

    def _remembered(self, number: int, read: Callable[[Source], tuple[np.ndarray, Any]]) -> tuple[np.ndarray, Any]:
        """What ``read`` made of an item, now or in an earlier epoch: pixels, and what tells where they come from."""
        kept = self._kept.get(number)
        if kept is None:
            worker = get_worker_info()
            if worker and self.reading:
                self.reading[2 * worker.id : 2 * worker.id + 2] = os.getpid(), number
            pixels, origin = kept = read(self.items[number].image)
            if pixels.nbytes * len(self.items) * (worker.num_workers if worker else 1) <= KEPT_BYTES:
                self._kept[number] = pixels, self._origins.setdefault(origin, origin)
        return kept


def _decoded(preparation: Preparation, source: Source, *, share: float | None) -> tuple[np.ndarray, Whole]:
    """The decoded picture as `Preparation.reduced` gives it, and the whole one."""
    reduced = preparation.reduced(source, share=share)
    return np.asarray(reduced.image), reduced.whole


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
