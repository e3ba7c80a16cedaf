"""A loader of batches; the batches do not depend on the number of workers."""

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
"""Seconds without a batch after which workers are killed: reading from a lost disk would wait forever."""
LOOK = 5
"""Seconds between checks of the workers while there is no batch."""


class EpochLoader:
    """Batches of one epoch after another, loaded by one set of workers; each process loads its part of every batch.

    Args:
        dataset: the data set.
        batch_size: images per batch, or tokens, as the data set counts; the last batch of an epoch may be smaller.
        shuffle: gives each epoch a random order, by the data set's seed.
        workers: the number of processes that prepare samples; 0 prepares them in this process.
        balance: shows every class equally often in an epoch; see `epoch_order`.
        part: the index of this process's part of each batch, from 0, and the number of equal parts.
        device: for a GPU, batches are put into pinned memory, from which copies are faster.

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
                os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else the library warns in every forked process
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
        """Return the number of samples in a batch of the current epoch, summed over all parts."""
        return len(self._epoch_keys()[batch])

    def places(self, batch: int) -> range:
        """Return the positions of this part in the batch; the range is empty if there are more parts than samples."""
        part, parts = self.part
        return range(self.size(batch) * part // parts, self.size(batch) * (part + 1) // parts)

    def units(self, batch: int) -> int:
        """Return the number of units in a batch over which losses are averaged, summed over all parts."""
        return self.dataset.units(self._epoch_keys()[batch])

    def _epoch_keys(self, epoch: int = 0) -> list[list[Key]]:
        if not self._keys:
            self._keys = self.dataset.batches(epoch, self.batch_size, shuffle=self.shuffle, balance=self.balance)
        return self._keys

    def epoch(self, epoch: int = 0, *, skip: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, without the first ``skip``; an empty part of a batch gets the batch's first sample.

        Raises:
            DataError: an image cannot be read, or a worker died while reading it.
            ConfigError: the data set's transform returned an unsupported value.
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
                    del batch  # its traceback refers to it, and would keep the workers alive
            yield batch

    def close(self) -> None:
        """End the workers at once; the next epoch starts new ones."""
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
            except (RuntimeError, OSError, EOFError) as error:  # the type depends on what the worker was doing
                silent = "timed out" in str(error)
                if silent and not _pins(iterator):
                    self.close()
                    hint = "raise the limit of open files (ulimit -n), or give /dev/shm more memory;"
                    hint += " else take --data.workers 0"
                    what = "batches of the worker processes cannot be received any more"
                    raise DataError(what, where="data.workers", hint=hint) from None
                if silent and time.monotonic() - since < WAIT:
                    continue
                time.sleep(0.1)  # until the system reports the end of the process
                if silent:
                    self._give_up()
                self._require_alive(error)
                raise
            yield batch
            since = time.monotonic()

    def _iterator(self) -> Iterator[Any]:
        """Return the iterator of torch's loader, without its SIGCHLD handler, which could raise at any point of the program."""
        heard = self._loader.num_workers and hasattr(signal, "SIGCHLD")
        if not heard or threading.current_thread() is not threading.main_thread():
            return iter(self._loader)
        before, open_to = signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
        try:
            return iter(self._loader)  # workers inherit the blocked signals, until `_patient` unblocks them
        finally:
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, open_to)

    def _give_up(self) -> NoReturn:
        """Kill workers that have returned nothing for `WAIT` seconds, and raise an error with the images that they were at."""
        workers: list[Any] = getattr(self._loader._iterator, "_workers", [])
        for process in workers:
            process.kill()
        self.close()
        where = ", ".join(dict.fromkeys(map(self.dataset.name, list(self.dataset.reading or ())[1::2])))
        hint = "check the disk or file server, and the free memory in /dev/shm; else take --data.workers 0"
        raise DataError(f"nothing was read for {WAIT} seconds", where=where, hint=hint) from None

    def _require_alive(self, error: Exception) -> None:
        """Raise an error if a worker has died, with the images that the dead workers were reading."""
        reading = list(self.dataset.reading or ())
        alive = {process.pid for process in multiprocessing.active_children()}
        dead = [number for process, number in zip(reading[::2], reading[1::2], strict=True) if process and process not in alive]
        if dead or "exited unexpectedly" in str(error):
            self.close()
            where = ", ".join(map(self.dataset.name, dead)) or "before its first image"
            hint = "if memory was short, take fewer --data.workers; else the image may crash its decoder: remove it"
            raise DataError("a process that prepares images was killed", where=where, hint=hint) from None


def _pins(iterator: Any) -> bool:
    """Return False if the thread that copies batches to pinned memory has ended."""
    thread = getattr(iterator, "_pin_memory_thread", None)
    return thread is None or thread.is_alive()


class _Following:
    """The batch sampler of torch's loader; its batches are replaced for every epoch."""

    def __init__(self) -> None:
        self.batches: list[Wanted] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _unchanged(batch: Any) -> Any:
    return batch


def _patient(worker: int) -> None:
    """Ignore signals that a terminal or cluster sends to every process: the main process ends the workers itself."""
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
