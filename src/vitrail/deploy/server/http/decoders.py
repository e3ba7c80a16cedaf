"""The threads that decode pictures, of which no request and no large picture can hold all."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.queue import FullError
from vitrail.errors import DataError

THREADS = 2
"""For small pictures. For large ones there is one more, so that they wait for each other alone."""
LARGE = 4_000_000
"""Pixels. A photograph of a telephone has 12 million, of which a JPEG decodes a quarter or less."""
MOST_PIXELS = 100_000_000
"""Pixels of the large pictures of a request."""
MOST_LARGE = 8
"""Requests with large pictures that may wait; each picture takes a fraction of a second, and the worst 2 seconds."""

D = TypeVar("D")


class Decoders:
    """Decode the pictures of a request one after another, beside the pictures of other requests.

    Of large pictures one is decoded at a time, whoever sent it: that bounds the memory of all requests together.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self._small, self._large = ThreadPoolExecutor(THREADS, "decode"), ThreadPoolExecutor(1, "decode-large")

    async def sizes(self, contents: list[bytes], check: Callable[[bytes], int]) -> list[int | DataError]:
        """Return the pixels that will be decoded of each picture of a request, or why it is refused.

        Args:
            contents: the files.
            check: a file's content to the pixels that will be decoded, by its head alone.

        Raises:
            ProblemError: the large ones are too large together.
        """
        found = await asyncio.get_running_loop().run_in_executor(self._small, _results, check, contents)
        if sum(pixels for pixels in found if isinstance(pixels, int) and pixels > LARGE) > MOST_PIXELS:
            what = f"the large pictures of the request have more than {MOST_PIXELS:,} pixels together"
            raise ProblemError(413, what, hint="send fewer at a time, or smaller ones")
        return found

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Be one of the requests with large pictures that wait; raises `FullError` where these are too many."""
        if self._waiting >= MOST_LARGE:
            raise FullError(MOST_LARGE / 2)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def decode(self, contents: list[bytes], sizes: list[int], work: Callable[[bytes], D]) -> list[D | DataError]:
        """The results of ``work``, or why there is none, for pictures of these `sizes`."""
        loop, found = asyncio.get_running_loop(), []
        for content, pixels in zip(contents, sizes, strict=True):
            threads = self._large if pixels > LARGE else self._small
            found.append(await loop.run_in_executor(threads, _result, work, content))
        return found

    def close(self) -> None:
        """Begin nothing new."""
        for threads in (self._small, self._large):
            threads.shutdown(wait=False, cancel_futures=True)


def _result(work: Callable[[bytes], D], content: bytes) -> D | DataError:
    try:
        return work(content)
    except DataError as error:
        return error


def _results(work: Callable[[bytes], D], contents: list[bytes]) -> list[D | DataError]:
    return [_result(work, content) for content in contents]
