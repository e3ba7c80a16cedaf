"""The threads that decode pictures, of which no request and no large picture can hold all."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vitrail.deploy.server.queue import FullError
from vitrail.errors import DataError

THREADS = 2
"""For small pictures. For large ones there is one more, so that they wait for each other alone."""
LARGE = 4_000_000
"""Pixels. A photograph of a telephone has 12 million, of which a JPEG decodes a quarter or less."""
MOST_LARGE = 8
"""Large pictures that may wait, of all requests together; each takes a fraction of a second, and the worst 2 seconds."""

D = TypeVar("D")


class Decoders:
    """Decode the pictures of a request one after another, beside the pictures of other requests.

    Of large pictures one is decoded at a time, whoever sent it: that bounds the memory of all requests together.

    Args:
        check: a file's content to the pixels that will be decoded, by its head alone.
    """

    def __init__(self, check: Callable[[bytes], int]):
        self._check, self._waiting = check, 0
        self._small, self._large = ThreadPoolExecutor(THREADS, "decode"), ThreadPoolExecutor(1, "decode-large")

    async def decode(self, contents: list[bytes], work: Callable[[bytes], D]) -> list[D | DataError]:
        """The results of ``work``, or why there is none.

        Raises:
            FullError: too many large pictures wait.
        """
        return [await self._decode(content, work) for content in contents]

    async def _decode(self, content: bytes, work: Callable[[bytes], D]) -> D | DataError:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._small, self._decode_small, content, work)
            return found[0] if found else await self._decode_large(content, work)
        except DataError as error:
            return error

    def _decode_small(self, content: bytes, work: Callable[[bytes], D]) -> tuple[D] | None:
        return (work(content),) if self._check(content) <= LARGE else None

    async def _decode_large(self, content: bytes, work: Callable[[bytes], D]) -> D:
        if self._waiting >= MOST_LARGE:
            raise FullError(MOST_LARGE / 2)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._large, work, content)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Begin nothing new."""
        for threads in (self._small, self._large):
            threads.shutdown(wait=False, cancel_futures=True)
