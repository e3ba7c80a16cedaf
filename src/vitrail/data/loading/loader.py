"""A loader of batches, which are the same whatever the number of workers."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import RawArray
from types import FrameType
from typing import Any, NoReturn, cast

import torch
from torch.utils.data import DataLoader, Dataset

from vitrail.data.loading.batches import Batch, Key, Samples, Wanted
from vitrail.errors import DataError, VitrailError
from vitrail.runtime.signals import HEARD

WAIT = 600
"""Seconds without a batch after which workers are ended: a disk that has gone keeps them waiting for ever."""
LOOK = 5
"""Seconds between looks at the workers while none gives a batch."""


class EpochLoader:
    """Batches of one epoch after another from one set of workers, or one process's part of each.

    Args:
        dataset: what to load.
        batch_size: images, or tokens, as the data set counts; the last batch of an epoch may be smaller.
        shuffle: gives each epoch its own order, by the data set's seed.
        workers: processes that prepare samples; 0 prepares them in this one.
        balance: shows every class equally often in an epoch; see `epoch_order`.
        part: the number of a part of every batch, from 0, and the number of equal parts.
        device: for a GPU workers put batches into pinned memory, which it fetches faster.

    Raises:
        ConfigError: the data set's transform cannot be sent to workers.
    """

    def __init__(
        self,
        dataset: Samples,
        batch_size: int,
        *,
        shuffle: bool,
        workers: int = 0,
        balance: bool = False,
        part: tuple[int, int] = (0, 1),
        device: torch.device | None = None,
    ):
        self.dataset, self.batch_size, self.shuffle, self.balance, self.part = dataset, batch_size, shuffle, balance, part
        workers = min(workers, dataset.count_batches(batch_size))
        if workers:
            if "tokenizers" in sys.modules:
                os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else it warns in every process that is forked
            dataset.require_sendable()
            dataset.reading = RawArray("q", 2 * workers)
        self._keys: list[list[Key]] = []  # of every batch of the current epoch
        self._following = _Following()
        self._loader = DataLoader(
            cast(Dataset[Any], dataset),
            batch_sampler=self._following,
            num_workers=workers,
            generator=torch.Generator(),
            collate_fn=_unchanged,
            persistent_workers=workers > 0,
            worker_init_fn=_patient,
            timeout=min(LOOK, WAIT) if workers else 0,
            pin_memory=workers > 0 and device is not None and device.type == "cuda",
        )

    def __len__(self) -> int:
        return self.dataset.count_batches(self.batch_size)

    def size(self, batch: int) -> int:
        """Return the number of samples in a batch of the current epoch, all its parts together."""
        return len(self._epoch_keys()[batch])

    def places(self, batch: int) -> range:
        """Return the positions of this part in the batch: none where there are more parts than samples."""
        part, parts = self.part
        return range(self.size(batch) * part // parts, self.size(batch) * (part + 1) // parts)

    def units(self, batch: int) -> int:
        """Return the number of things in a batch that losses are means over, all its parts together."""
        return self.dataset.units(self._epoch_keys()[batch])

    def _epoch_keys(self, epoch: int = 0) -> list[list[Key]]:
        if not self._keys:
            self._keys = self.dataset.batches(epoch, self.batch_size, shuffle=self.shuffle, balance=self.balance)
        return self._keys

    def epoch(self, epoch: int = 0, *, skip: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, without the first ``skip``; a part of a batch without a sample gets its first.

        Raises:
            DataError: an image cannot be read, or a worker died over it.
            ConfigError: the data set's transform returned something else than it may.
        """
        self._keys, self._following.batches = [], []
        for number, keys in enumerate(self._epoch_keys(epoch)[skip:], skip):
            places = self.places(number) or range(1)
            self._following.batches.append(Wanted(keys, slice(places.start, places.stop)))
        for batch in self._batches():
            if isinstance(batch, VitrailError):
                try:
                    raise batch
                finally:
                    del batch  # else its traceback would hold it, and with it the workers
            yield batch

    def close(self) -> None:
        """End the workers at once; another epoch would start new ones."""
        iterator: Any = self._loader._iterator
        self._loader._iterator = None
        if iterator is not None:
            iterator._shutdown_workers()

    def _batches(self) -> Iterator[Batch | VitrailError]:
        iterator, since = self._iterator(), time.monotonic()
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except (RuntimeError, OSError, EOFError) as error:  # the error depends on what a worker was at
                silent = "timed out" in str(error)
                if silent and not _pins(iterator):
                    self.close()
                    hint = "were there too many open files (ulimit -n), or too little memory in /dev/shm?"
                    hint += " else take --data.workers 0"
                    what = "what processes prepared cannot be taken over any more"
                    raise DataError(what, where="data.workers", hint=hint) from None
                if silent and time.monotonic() - since < WAIT:
                    continue
                time.sleep(0.1)  # until the system knows of it
                if silent:
                    self._give_up()
                self._require_alive(error)
                raise
            yield batch
            since = time.monotonic()

    def _iterator(self) -> Iterator[Any]:
        """Return the iterator of torch's loader, without its handler of SIGCHLD, which would raise in the middle of anything."""
        heard = self._loader.num_workers and hasattr(signal, "SIGCHLD")
        if not heard or threading.current_thread() is not threading.main_thread():
            return iter(self._loader)
        before, open_to = signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
        try:
            return iter(self._loader)  # workers begin deaf, as this thread is here, until they are `_patient`
        finally:
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, open_to)

    def _give_up(self) -> NoReturn:
        """End workers that have given nothing for `WAIT` seconds; raise an error that names the images they are at."""
        workers: list[Any] = getattr(self._loader._iterator, "_workers", [])
        for process in workers:
            process.kill()
        self.close()
        where = ", ".join(dict.fromkeys(map(self.dataset.name, list(self.dataset.reading or ())[1::2])))
        hint = "is the disk, or the server of its files, still there, and memory free in /dev/shm? else take --data.workers 0"
        raise DataError(f"nothing was read for {WAIT} seconds", where=where, hint=hint) from None

    def _require_alive(self, error: Exception) -> None:
        """Raise an error that names the images at which workers ended, if any has."""
        reading = list(self.dataset.reading or ())
        alive = {process.pid for process in multiprocessing.active_children()}
        dead = [number for process, number in zip(reading[::2], reading[1::2], strict=True) if process and process not in alive]
        if dead or "exited unexpectedly" in str(error):
            self.close()
            where = ", ".join(map(self.dataset.name, dead)) or "before its first image"
            hint = "if memory was short, take fewer --data.workers; else the image it was at may crash its reader: remove it"
            raise DataError("a process that prepares images was killed", where=where, hint=hint) from None


def _pins(iterator: Any) -> bool:
    """Return False if the thread that takes batches over into pinned memory has ended."""
    thread = getattr(iterator, "_pin_memory_thread", None)
    return thread is None or thread.is_alive()


class _Following:
    """The batch sampler that torch's loader asks at the start of every epoch."""

    def __init__(self) -> None:
        self.batches: list[Wanted] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _unchanged(batch: Any) -> Any:
    return batch


def _patient(worker: int) -> None:
    """Ignore signals of a terminal or a cluster, which reach every process: a worker ends when its main process ends it."""
    first: list[float] = []

    def once(number: int, frame: FrameType | None) -> None:
        if first and time.monotonic() - first[0] > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        first.append(time.monotonic())

    for number in HEARD:
        signal.signal(number, once if number == signal.SIGTERM else signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
