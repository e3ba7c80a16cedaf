"""Pictures out of the body of a request, within limits that hold while it is read."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from vitrail.deploy.server.problems import ProblemError, busy

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

BODY_SECONDS = 10.0
"""A body takes at most so long to come."""
FIELDS = 8
"""Parts of a form that are no pictures; nothing reads them."""
RAW = "application/octet-stream"
FORM = "multipart/form-data"
T = TypeVar("T")


@dataclass(frozen=True)
class Picture:
    """A file as it came."""

    name: str
    content: bytes


@dataclass
class Memory:
    """The bytes of bodies that are held at a time, of all requests together."""

    most: int
    held: int = 0


@dataclass
class Body:
    """What has been read of a request. Its bytes count in ``memory`` until `release`."""

    memory: Memory
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0

    async def read(self, request: Request, most: int) -> bytes:
        """All of it.

        Raises:
            ProblemError: it is larger than ``most`` bytes, there is no memory for it, or it does not come.
        """
        require_size(request.headers, most)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    self._keep(chunk, most)
        except TimeoutError:
            raise ProblemError(408, f"the body did not come within {BODY_SECONDS:g} seconds") from None
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
        """Nothing of it is kept any more."""
        self.memory.held -= self.size
        self.size = 0


def too_large(most: int) -> ProblemError:
    """The refusal of a body of more bytes."""
    return ProblemError(413, f"the body is larger than {most:,} bytes", hint="send a smaller image, or fewer at a time")


def require_size(headers: Headers, most: int) -> None:
    """Refuse a body that declares a larger size."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large(most)


def require_kind(headers: Headers) -> None:
    """Refuse a body whose declared type cannot hold pictures."""
    kind = media_type(headers)
    if headers.get("content-encoding", "identity") != "identity":
        raise ProblemError(415, "compressed bodies are not read", hint="send the image as it is, without Content-Encoding")
    if kind not in ("", RAW, FORM) and not kind.startswith("image/"):
        raise ProblemError(415, f"{kind} is no image", hint=f"send it as image/jpeg (or the like), {RAW} or {FORM}")


def media_type(headers: Headers) -> str:
    """The Content-Type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def pictures(content: bytes, headers: Headers, most: int) -> list[Picture]:
    """The pictures of a body: itself, or the files of a form.

    Raises:
        ProblemError: there are none, more than ``most``, or the form is damaged.
    """
    if media_type(headers) != FORM:
        if not content:
            raise ProblemError(422, "the body is empty", hint="send an image")
        return [Picture("image", content)]
    form = _Form(most)
    try:
        parser = MultipartParser(parse_options_header(headers["content-type"])[1].get(b"boundary", b""), form.callbacks)
        parser.write(content)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise ProblemError(422, f"the form is damaged: {error}") from None
    if not form.whole or not form.files:
        what = "the form has no files" if form.whole else "the form is cut off"
        raise ProblemError(422, what, hint="send each image as a file: curl -F images=@cat.jpg")
    return [Picture(name or f"image {number}", bytes(data)) for number, (name, data) in enumerate(form.files, start=1)]


class _Form:
    """The files of a form, collected while it is parsed."""

    def __init__(self, most: int):
        self.files: list[tuple[str, bytearray]] = []
        self.whole = False
        self._most, self._parts = most, 0
        self._name, self._value, self._disposition = b"", b"", b""
        self._is_file = False
        self.callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > self._most + FIELDS:
            raise self._too_many()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name, self._value = b"", b""

    def _headers_end(self) -> None:
        name = parse_options_header(self._disposition)[1].get(b"filename")
        self._is_file = name is not None
        if name is not None:
            self.files.append((name.decode(errors="replace"), bytearray()))
        if len(self.files) > self._most:
            raise self._too_many()

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.files[-1][1].extend(memoryview(data)[start:end])

    def _end(self) -> None:
        self.whole = True

    def _too_many(self) -> ProblemError:
        return ProblemError(413, f"the request has more than {self._most} images", hint="send them in several requests")


async def while_connected(request: Request, work: Coroutine[Any, Any, T], expires: float) -> T:
    """The result of some work, which is given up when the client goes; for a request whose body is read.

    Raises:
        TimeoutError: it is not there when it ``expires``, on the clock of the event loop.
        ClientDisconnect: nobody waits for it any more.
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
