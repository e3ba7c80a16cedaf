"""Pictures read while those before them are in use."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from vitrail.data.decode import Source
from vitrail.data.preparation import Preparation
from vitrail.errors import DataError
from vitrail.runtime.memory import kept_memory


def read_ahead(preparation: Preparation, pictures: Sequence[Source], batch_size: int) -> Iterator[list[np.ndarray | DataError]]:
    """Pictures as pixels, uint8 (C, H, W), batch by batch, with the error in place of one that cannot be read.

    While a batch is in use, the images of the next one are read.
    """

    def read(picture: Source) -> np.ndarray | DataError:
        try:
            return preparation.pixels(picture)
        except DataError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count(), "read") as pool, kept_memory():
        ahead: deque[list[Future[np.ndarray | DataError]]] = deque()
        try:
            for start in range(0, len(pictures) + batch_size, batch_size):
                ahead.append([pool.submit(read, picture) for picture in pictures[start : start + batch_size]])
                if start:
                    yield [image.result() for image in ahead.popleft()]
        finally:
            pool.shutdown(cancel_futures=True)
