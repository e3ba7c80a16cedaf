"""What every server does, behind HTTP: admit, read, compute in batches, drain."""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Generic, TypeVar

from fastapi import FastAPI
from starlette.requests import Request

from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.problems import busy, shutting_down, stuck
from vitrail.deploy.server.http.reading import Body, Memory, require_size
from vitrail.deploy.server.metrics import Metrics
from vitrail.deploy.server.queue import Queue, Worker, sizes
from vitrail.deploy.server.schema import Document
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.deploy.server.workers.watchdog import Watch

BODIES = 8
"""Bodies of the largest size that may be held at a time."""
READERS = 2
"""Threads that take bodies apart and write long answers."""

T = TypeVar("T")
R = TypeVar("R")


class Service(ABC, Generic[T, R]):
    """A model that answers many at a time: T is what it computes an R of.

    Args:
        name: what the model is called.
        limits: what is taken on.
        place: among the workers of the server; alone by default.
    """

    summary: ClassVar[str]
    """What it does, in the description of the server."""
    page: ClassVar[str]
    """Its page is the files whose names begin so in the folder ``page``."""
    document: ClassVar[type[Document]]
    """What `described` gives."""
    items: ClassVar[str]
    """What each place in the queue is for, as metrics call it."""

    def __init__(self, name: str, limits: Limits, place: Place | None = None):
        self.name, self.limits, self.place = name, limits, place or Place.alone()
        self.metrics, self._memory = Metrics(self.items), Memory(BODIES * limits.body)
        self._worker, self._readers = Worker(), ThreadPoolExecutor(READERS, "read")
        self.watch = Watch(self._worker)
        self._queue: Queue[T, R] = self._worker.queue(
            self._compute, capacity=limits.waiting, most=limits.batch, observe=self.metrics.computed
        )
        self.draining = False
        self.active = 0
        """Requests that were let in and are not answered yet."""
        what = self.items.capitalize()
        self.metrics.gauge(self.items, f"{what} in the server: read, waiting, computed.", lambda: self._queue.taken)
        self.metrics.gauge(f"{self.items}_limit", f"{what} that may be in the server.", lambda: limits.waiting)
        self.metrics.gauge("body_bytes", "Bytes of bodies that are held.", lambda: self._memory.held)
        self.metrics.gauge("draining", "1 while the server finishes what it has, and takes nothing new.", lambda: self.draining)

    @abstractmethod
    def add_to(self, app: FastAPI) -> None:
        """Have an application answer at the paths of this service."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What answers, and the limits of a request."""

    @abstractmethod
    def _compute(self, values: list[T]) -> Sequence[R]:
        """The answers of a batch, in the thread that computes."""

    @abstractmethod
    def _rehearse(self) -> Callable[[int], object]:
        """What computes a batch of that size whose answers nobody wants."""

    def start(self) -> None:
        """Compute batches of nothing, of every size, so that memory is there and the pace is known, and begin to work.

        A worker that takes another's place begins sooner.
        """
        compute, known = self._rehearse(), self.place.board.head
        if known.slowest:  # another worker has found out
            compute(1)
        else:
            for size in (*sizes(self.limits.batch), self.limits.batch):
                begin = time.monotonic()
                compute(size)
                took = time.monotonic() - begin
                self.place.own.beats += 1
                known.slowest, known.pace = max(known.slowest, took), took / size
        self._queue.pace = known.pace
        self.watch.expect(self.limits.deadline, known.slowest)
        self._worker.start()

    def close(self) -> None:
        """Let the threads go."""
        self._worker.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _aside(self, work: Callable[..., Any], *given: Any) -> Any:
        """The result of what would keep others waiting, from another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *given)

    def ended(self, seconds: float) -> bool:
        """Whether nothing is computed any more, so many seconds after `close` at most."""
        return self._worker.ended(seconds)

    def require_ready(self) -> None:
        """Refuse what could not be answered.

        A worker that ends while others go on refuses nothing: what still comes to it came before it was told to, by a connection
        that no other worker can answer and that is closed after the answer.
        """
        if self.draining and not self.place.replaced:
            raise shutting_down()
        if trouble := self.watch.trouble:
            raise stuck(trouble)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Let a request in, whose answer then comes before the server goes."""
        self.require_ready()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    async def _body(self, request: Request, held: contextlib.ExitStack, queue: Queue[Any, Any]) -> bytes:
        """The bytes of a request for that queue, which count as held until ``held`` is closed.

        What can be refused is refused before a byte of them is read.
        """
        require_size(request.headers, self.limits.body)
        queue.require_room()
        if self._memory.held >= self._memory.most:
            raise busy(1)
        body = Body(self._memory)
        held.callback(body.release)
        return await body.read(request, self.limits.body)
