"""Reading the body of a request, with limits on size, memory and time that are checked during the read."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from vitrail.deploy.server.http.problems import ProblemError, busy

BODY_SECONDS = 10.0
"""Seconds within which a body must arrive."""
T = TypeVar("T")


@dataclass
class Memory:
    """The bytes of the bodies of all requests that are in memory now, and the limit ``most``."""

    most: int
    held: int = 0


@dataclass
class Body:
    """The bytes of a request's body that have been read. They count in ``memory`` until `release`."""

    memory: Memory
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0

    async def read(self, request: Request, most: int) -> bytes:
        """Return the complete body.

        Raises:
            ProblemError: the body is larger than ``most`` bytes, there is no memory for it, or it does not arrive in time.
        """
        require_size(request.headers, most)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    self._keep(chunk, most)
        except TimeoutError:
            raise ProblemError(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
        whole, self.chunks = b"".join(self.chunks), []
        return whole

    def _keep(self, chunk: bytes, most: int) -> None:
        self.size += len(chunk)
        self.memory.held += len(chunk)
        if self.size > most:
            raise too_large(most)
        if self.memory.held > self.memory.most:
            raise busy(1)
        self.chunks.append(chunk)

    def release(self) -> None:
        """Subtract the body from ``memory``, once the caller has dropped it."""
        self.memory.held -= self.size
        self.size = 0


def too_large(most: int) -> ProblemError:
    """The error for a body of more than ``most`` bytes."""
    return ProblemError(413, f"the body is larger than {most:,} bytes", hint="send less at a time")


def require_size(headers: Headers, most: int) -> None:
    """Raise `ProblemError` if Content-Length is larger than ``most``."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large(most)


def require_plain(headers: Headers) -> None:
    """Raise `ProblemError` for a compressed body, whose size is not known before it is unpacked."""
    if headers.get("content-encoding", "identity") != "identity":
        raise ProblemError(415, "compressed bodies are not supported", hint="send it uncompressed, without Content-Encoding")


def media_type(headers: Headers) -> str:
    """The Content-Type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def while_connected(request: Request, work: Coroutine[Any, Any, T], expires: float) -> T:
    """Return the result of ``work``, which is cancelled if the client disconnects. The request's body must be read already.

    Raises:
        TimeoutError: there is no result at the time ``expires``, on the clock of the event loop.
        ClientDisconnect: the client has disconnected.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        async with asyncio.timeout_at(expires):
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.wait((working, gone))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
