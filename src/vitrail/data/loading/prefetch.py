"""Pictures read batch by batch, for a GPU while the ones before them are in use."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from vitrail.errors import DataError
from vitrail.runtime.device import pick_device
from vitrail.runtime.memory import kept_memory

T = TypeVar("T")
S = TypeVar("S")


def each_answer(batches: Iterable[Sequence[T | DataError]]) -> Iterator[T]:
    """Yield the answers of all batches, one after another; raise the error in place of one."""
    for answers in batches:
        for answer in answers:
            if isinstance(answer, DataError):
                raise answer
            yield answer


def read_ahead(read: Callable[[S], T], batches: Iterable[Sequence[S]]) -> Iterator[list[T | DataError]]:
    """Yield what ``read`` gives of pictures, batch by batch, with the error in place of one that cannot be read.

    While a GPU uses a batch, the pictures of the next one are read. On a CPU the two take turns, each with all cores: at the same
    time both are slower (docs/performance.md).
    """
    most = 0 if pick_device().type == "cpu" else 1

    def tried(picture: S) -> T | DataError:
        try:
            return read(picture)
        except DataError as error:
            return error

    pool = ThreadPoolExecutor(os.cpu_count(), "read")
    ahead: deque[list[Future[T | DataError]]] = deque()
    try:
        with kept_memory():
            for batch in batches:
                ahead.append([pool.submit(tried, picture) for picture in batch])
                if len(ahead) > most:
                    yield [image.result() for image in ahead.popleft()]
            for last in ahead:
                yield [image.result() for image in last]
    finally:
        # Garbage collection may end this in a thread that holds a lock of the module threading, which the pool's threads need:
        # waiting for them would last for ever.
        pool.shutdown(wait=False, cancel_futures=True)
