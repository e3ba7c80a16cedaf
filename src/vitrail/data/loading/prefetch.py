"""Reading of images batch by batch; with a GPU the next batch is read while the current one is in use."""

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
    """Yield the predictions of all batches, one after another; raise the error that stands in place of a prediction."""
    for answers in batches:
        for answer in answers:
            if isinstance(answer, DataError):
                raise answer
            yield answer


def read_ahead(read: Callable[[S], T], batches: Iterable[Sequence[S]]) -> Iterator[list[T | DataError]]:
    """Yield the results of ``read`` for each batch, with a `DataError` in place of an image that cannot be read.

    While a GPU computes a batch, the next one is read. On a CPU, reading and computing alternate, each on all cores: running both
    at the same time is slower (docs/performance.md).
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
        # Do not wait: garbage collection may run this in a thread that holds a lock of the module threading, which the pool's
        # threads need.
        pool.shutdown(wait=False, cancel_futures=True)
