"""Threads that decode images. No single request and no large image can occupy all of them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.queue import FullError
from vitrail.errors import DataError

THREADS = 2
"""Threads for small images. One more thread decodes large images, so that small images never wait for them."""
LARGE = 4_000_000
"""Pixels from which an image is large. A phone's photo has 12 million, but a quarter or less of a JPEG's are decoded."""
MOST_PIXELS = 100_000_000
"""Most pixels of all large images of a request."""
MOST_LARGE = 8
"""Most requests with large images that may wait; an image takes a fraction of a second, 2 seconds at worst."""

D = TypeVar("D")


class Decoders:
    """A decoder of images: one image of a request at a time, in parallel with those of other requests.

    Only one large image of all requests is decoded at a time, which limits the memory of the server.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self._small, self._large = ThreadPoolExecutor(THREADS, "decode"), ThreadPoolExecutor(1, "decode-large")

    async def sizes(self, contents: list[bytes], check: Callable[[bytes], int]) -> list[int | DataError]:
        """Return for each image of a request how many pixels will be decoded, or the error for which it is refused.

        Args:
            contents: the files.
            check: returns how many pixels of a file will be decoded, from its header only.

        Raises:
            ProblemError: the large images have too many pixels together.
        """
        found = await asyncio.get_running_loop().run_in_executor(self._small, _results, check, contents)
        if sum(pixels for pixels in found if isinstance(pixels, int) and pixels > LARGE) > MOST_PIXELS:
            what = f"the large images of the request have more than {MOST_PIXELS:,} pixels together"
            raise ProblemError(413, what, hint="send fewer at a time, or smaller ones")
        return found

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count as a waiting request with large images; raises `FullError` if too many wait."""
        if self._waiting >= MOST_LARGE:
            raise FullError(MOST_LARGE / 2)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def decode(self, contents: list[bytes], sizes: list[int], work: Callable[[bytes], D]) -> list[D | DataError]:
        """Return the result of ``work`` for each file, or its error; ``sizes`` are the results of `sizes`."""
        loop, found = asyncio.get_running_loop(), []
        for content, pixels in zip(contents, sizes, strict=True):
            threads = self._large if pixels > LARGE else self._small
            found.append(await loop.run_in_executor(threads, _result, work, content))
        return found

    def close(self) -> None:
        """Stop the threads after their current images."""
        for threads in (self._small, self._large):
            threads.shutdown(wait=False, cancel_futures=True)


def _result(work: Callable[[bytes], D], content: bytes) -> D | DataError:
    try:
        return work(content)
    except DataError as error:
        return error


def _results(work: Callable[[bytes], D], contents: list[bytes]) -> list[D | DataError]:
    return [_result(work, content) for content in contents]
