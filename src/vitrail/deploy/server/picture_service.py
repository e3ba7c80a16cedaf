"""What servers of pictures share: pictures come out of a request, are decoded within limits, and wait for the model."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import torch
from starlette.requests import Request
from torch import Tensor

from vitrail.data.images.plan import to_pixels
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.server.http.decoders import LARGE, Decoders
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.http.reading import while_connected
from vitrail.deploy.server.pictures import Form, Picture, form_of, require_picture
from vitrail.deploy.server.queue import Queue
from vitrail.deploy.server.service import Service
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.errors import DataError

LOOKS = 4
"""Places of those who ask for attention, which costs more than an answer."""

T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D")
A = TypeVar("A")
B = TypeVar("B")


class Work(NamedTuple, Generic[D, A]):
    """What is done with the pictures of a request."""

    decode: Callable[[bytes], D]
    """In a thread that decodes."""
    values: Callable[[D], list[A]]
    """What goes into the queue of each."""
    places: int
    """Of all of them in the queue."""


class Framed(NamedTuple):
    """A picture as the model takes it."""

    pixels: np.ndarray
    seen: list[float]
    """The part of the upright picture that they show: left, top, right, bottom as shares of its sides."""


class PictureService(Service[T, R]):
    """A model that is asked about pictures.

    Args:
        name: what the model is called.
        limits: what is taken on.
        preparation: makes the model's input of pictures.
        check: a file's content to the pixels that will be decoded, by its head alone.
        place: among the workers of the server; alone by default.
    """

    def __init__(
        self, name: str, limits: Limits, preparation: Preparation, check: Callable[[bytes], int], place: Place | None = None
    ):
        super().__init__(name, limits, place)
        self.preparation = preparation
        self._decoders = Decoders(check, self.place.board.turn)

    def close(self) -> None:
        """Let the threads go."""
        super().close()
        self._decoders.close()

    def _answer(self, pixels: Tensor) -> object:
        """What the model says of pictures, uint8 (B, C, H, W)."""
        raise NotImplementedError

    def _rehearse(self) -> Callable[[int], object]:
        pixels = torch.zeros(self.limits.batch, self.preparation.channels, *self.preparation.image_size, dtype=torch.uint8)
        return lambda size: self._answer(pixels[:size])

    def _limits(self) -> dict[str, float]:
        """The limits of a request, as the server tells them."""
        limits = self.limits
        return {"body": limits.body, self.items: limits.items, "pixels": limits.pixels, "deadline": limits.deadline}

    def _framed(self, content: bytes) -> Framed:
        picture, seen = self.preparation.framed(content)
        return Framed(to_pixels(picture), list(seen))

    def _queue_of_looks(self, see: Callable[[list[A]], list[dict[str, Any]]]) -> Queue[A, dict[str, Any]]:
        """A queue for those who ask for attention."""
        looked = self.metrics.timing("attention_seconds", "What the attention of a picture took.")
        return self._worker.queue(see, capacity=LOOKS, most=1, observe=looked)

    async def _received(
        self, request: Request, held: contextlib.ExitStack, queue: Queue[Any, Any], most: int, fields: tuple[str, ...] = ()
    ) -> Form:
        """The pictures of a request, at ``most`` so many, and what else its form has."""
        require_picture(request.headers)
        form: Form = await self._aside(form_of, await self._body(request, held, queue), request.headers, most, fields)
        return form

    async def _answered(
        self, request: Request, held: contextlib.ExitStack, queue: Queue[A, B], found: list[Picture], work: Work[D, A]
    ) -> tuple[list[D], list[B]]:
        """What the pictures of a request are decoded to, and what the queue makes of all their values; forgets the pictures."""
        expires = time.monotonic() + self.limits.deadline
        contents = [picture.content for picture in found]
        sizes = all_good(found, await self._decoders.sizes(contents))
        large = max(sizes) > LARGE

        async def answers() -> tuple[list[D], list[B]]:
            with contextlib.ExitStack() as places:
                if not large:  # else it would hold places for as long as its pictures wait
                    places.enter_context(queue.places(work.places))
                with self._decoders.turn() if large else contextlib.nullcontext():
                    decoded = all_good(found, await self._decoders.decode(contents, sizes, work.decode))
                found.clear()
                contents.clear()
                held.close()  # from here on there are only pixels
                if large:
                    places.enter_context(queue.places(work.places))
                return decoded, await queue.answers([value for each in decoded for value in work.values(each)], expires)

        return await while_connected(request, answers(), expires)


def all_good(found: list[Picture], made: list[D | DataError]) -> list[D]:
    """What was made of pictures; one `ProblemError` names all of which nothing could be."""
    failed = [(picture.name, error) for picture, error in zip(found, made, strict=True) if isinstance(error, DataError)]
    if not failed:
        return cast(list[D], made)
    names = ", ".join(name for name, _ in failed)
    what = failed[0][1].what if len(found) == 1 else f"{len(failed)} of {len(found)} images cannot be read: {names}"
    errors = [{"image": name, "reason": error.what} for name, error in failed]
    raise ProblemError(422, what, hint=failed[0][1].hint, errors=errors)
