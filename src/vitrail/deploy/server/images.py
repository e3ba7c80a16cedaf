"""What the server does, behind HTTP: admit, read, decode, compute in batches, drain."""

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
import torch
from starlette.requests import Request
from torch import Tensor

from vitrail.data.decode import SERVED, check_head
from vitrail.data.plan import to_pixels
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.server.limits import Limits
from vitrail.deploy.server.metrics import Metrics
from vitrail.deploy.server.problems import ProblemError, busy, shutting_down
from vitrail.deploy.server.queue import Queue, Worker, sizes
from vitrail.deploy.server.reading import Body, Memory, Picture, pictures, require_kind, require_size, while_connected
from vitrail.errors import DataError
from vitrail.weights.labelled import Answer

DECODERS = 2
"""Threads that decode; each may need what the largest picture takes."""
BODIES = 8
"""Bodies of the largest size that may be held at a time."""
LOOKS = 4
"""Places of those who ask for attention, which costs more than an answer."""

T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D")
Look = Callable[[Tensor], Tensor]
"""Prepared pixels, uint8 (1, C, H, W), to what each head of each layer looks at, (layers, heads, rows, columns); or to the
relevance of each patch, (rows, columns)."""


class Service:
    """A model that answers many at a time.

    Args:
        predictor: computes the answers; used by one thread.
        name: what the model is called.
        limits: what is taken on.
        look: computes attention, in the same thread; None where the model's cannot be seen.
        unseen: why not, then.
        relevance: computes what speaks for the best label, beside attention; None where that cannot be told.
    """

    def __init__(
        self,
        predictor: Predictor,
        name: str,
        limits: Limits,
        look: Look | None = None,
        unseen: str = "",
        relevance: Look | None = None,
    ):
        self.predictor, self.name, self.limits, self.unseen = predictor, name, limits, unseen
        self._look, self._relevance = look, relevance
        self.metrics, self._memory = Metrics(), Memory(BODIES * limits.body)
        self._worker = Worker()
        self._images: Queue[tuple[np.ndarray, int], Answer] = self._worker.queue(
            self._answer, capacity=limits.waiting, most=limits.batch, observe=self.metrics.computed
        )
        self._looks: Queue[np.ndarray, dict[str, Any]] = self._worker.queue(
            self._see, capacity=LOOKS, most=1, observe=self.metrics.looked
        )
        self._decoders = ThreadPoolExecutor(DECODERS, "decode")
        self.draining = False
        self.active = 0
        """Requests that were let in and are not answered yet."""
        self.metrics.gauge("images", "Images in the server: read, decoded, waiting, computed.", lambda: self._images.taken)
        self.metrics.gauge("images_limit", "Images that may be in the server.", lambda: limits.waiting)
        self.metrics.gauge("body_bytes", "Bytes of bodies that are held.", lambda: self._memory.held)
        self.metrics.gauge("draining", "1 while the server finishes what it has, and takes nothing new.", lambda: self.draining)

    @property
    def sees(self) -> bool:
        """Whether it can show where the model looks."""
        return self._look is not None

    def start(self) -> None:
        """Compute batches of nothing, of every size, so that memory is there and the pace is known, and begin to work."""
        preparation = self.predictor.preparation
        pixels = torch.zeros(self.limits.batch, preparation.channels, *preparation.image_size, dtype=torch.uint8)
        for size in (*sizes(self.limits.batch), self.limits.batch):
            begin = time.monotonic()
            self.predictor.best(pixels[:size], 1)
            self._images.pace = (time.monotonic() - begin) / size
        self._worker.start()

    def close(self) -> None:
        """Let the threads go."""
        self._worker.close()
        self._decoders.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Let a request in, whose answer then comes before the server goes."""
        if self.draining:
            raise shutting_down()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    async def predict(self, request: Request, top: int) -> list[tuple[str, Answer]]:
        """The names of a request's pictures, and the answers with their ``top`` labels."""
        names, _, labels = await self._through(
            self._images, request, self.limits.images, self._pixels, lambda pixels: (pixels, top)
        )
        return list(zip(names, labels, strict=True))

    async def look(self, request: Request) -> dict[str, Any]:
        """Where the model looks in the one picture of a request."""
        if self._look is None:
            raise ProblemError(501, f"this server cannot tell where the model looks: {self.unseen}")
        _, ((_, seen),), (maps,) = await self._through(self._looks, request, 1, self._framed, lambda framed: framed[0])
        return {"seen": seen, **maps}

    async def _through(
        self, queue: Queue[T, R], request: Request, most: int, decode: Callable[[bytes], D], value: Callable[[D], T]
    ) -> tuple[list[str], list[D], list[R]]:
        """The names of a request's pictures, at ``most`` so many, what they are decoded to, and what the queue makes of that."""
        with contextlib.ExitStack() as held:
            found = await self._received(request, held, queue, most)
            names = [picture.name for picture in found]
            with queue.places(len(found)):
                expires = time.monotonic() + self.limits.deadline

                async def work() -> tuple[list[D], list[R]]:
                    decoded = await self._decoded(found, decode)
                    found.clear()
                    held.close()  # from here on there are only pixels
                    return decoded, await queue.answers([value(each) for each in decoded], expires)

                return names, *await while_connected(request, work(), expires)

    async def _received(self, request: Request, held: contextlib.ExitStack, queue: Queue[Any, Any], most: int) -> list[Picture]:
        """The pictures of a request. What can be refused is refused before a byte of them is read."""
        require_kind(request.headers)
        require_size(request.headers, self.limits.body)
        queue.require_room()
        if self._memory.held >= self._memory.most:
            raise busy(1)
        body = Body(self._memory)
        held.callback(body.release)
        return pictures(await body.read(request, self.limits.body), request.headers, most)

    async def _decoded(self, found: list[Picture], decode: Callable[[bytes], D]) -> list[D]:
        """The results of ``decode`` for pictures; one error names all pictures that cannot be read."""
        loop = asyncio.get_running_loop()
        made = await asyncio.gather(
            *(loop.run_in_executor(self._decoders, decode, picture.content) for picture in found), return_exceptions=True
        )
        failed = [(picture.name, error) for picture, error in zip(found, made, strict=True) if isinstance(error, DataError)]
        if failed:
            names = ", ".join(name for name, _ in failed)
            what = failed[0][1].what if len(found) == 1 else f"{len(failed)} of {len(found)} images cannot be read: {names}"
            errors = [{"image": name, "reason": error.what} for name, error in failed]
            raise ProblemError(422, what, hint=failed[0][1].hint, errors=errors)
        for each in made:
            if isinstance(each, BaseException):
                raise each
        return cast(list[D], made)

    def _pixels(self, content: bytes) -> np.ndarray:
        check_head(content, formats=SERVED)
        return self.predictor.preparation.pixels(content)

    def _framed(self, content: bytes) -> tuple[np.ndarray, list[float]]:
        """Pixels, and the part of the upright picture that they show: left, top, right, bottom as shares of its sides."""
        check_head(content, formats=SERVED)
        picture, seen = self.predictor.preparation.framed(content)
        return to_pixels(picture), list(seen)

    def _answer(self, images: list[tuple[np.ndarray, int]]) -> list[Answer]:
        """Labels of a batch, as many for each as it asks for."""
        pixels = torch.from_numpy(np.stack([each for each, _ in images]))
        found = self.predictor.best(pixels, max(top for _, top in images))
        return [answer._replace(best=answer.best[:top]) for answer, (_, top) in zip(found, images, strict=True)]

    def _see(self, images: list[np.ndarray]) -> list[dict[str, Any]]:
        assert self._look is not None
        return [self._seen(torch.from_numpy(pixels[None]), self._look) for pixels in images]

    def _seen(self, pixels: Tensor, look: Look) -> dict[str, Any]:
        relevance = None if self._relevance is None else encoded(self._relevance(pixels)[None, None])["maps"]
        return {**encoded(look(pixels)), "relevance": relevance}


def encoded(maps: Tensor) -> dict[str, Any]:
    """Maps (layers, heads, rows, columns) with one byte for each patch; 255 stands for the largest value of its map."""
    largest = maps.amax(dim=(2, 3))
    scaled = maps / largest[..., None, None].clamp(min=torch.finfo(torch.float32).tiny)
    content = (255 * scaled).round().to(torch.uint8).numpy().tobytes()
    sides = dict(zip(("layers", "heads", "rows", "columns"), maps.shape, strict=True))
    return {**sides, "largest": largest.tolist(), "maps": base64.b64encode(content).decode()}
