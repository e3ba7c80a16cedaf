"""A model behind HTTP, whatever its task: admit a request, read it, prepare it, compute it in batches, answer it, drain."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vitrail.deploy.server.http.decoders import LARGE, Decoders
from vitrail.deploy.server.http.forms import File
from vitrail.deploy.server.http.problems import ProblemError, busy, shutting_down, stuck, unseen
from vitrail.deploy.server.http.reading import Body, Memory, require_size, while_connected
from vitrail.deploy.server.metrics import Metrics
from vitrail.deploy.server.operation import Computed, Operation, Prepared, Served
from vitrail.deploy.server.queue import PATIENCE, Queue, Worker, sizes
from vitrail.deploy.server.watchdog import Watch
from vitrail.errors import DataError
from vitrail.runtime.terminal import exit_at_once

BODIES = 8
"""Bodies of the largest size that may be held at a time."""
READERS = 2
"""Threads that take bodies apart and write answers."""
LOOKS = 4
"""Places of requests for attention, which costs more than a prediction."""
LOOK = 1.0
"""Seconds between two looks at the thread that computes."""

log = logging.getLogger(__name__)

T = TypeVar("T")
AnyOperation = Operation[Any, Any, Any]


class Service:
    """A model that answers many at a time.

    Args:
        task: what the model's task contributes; computes in one thread.
        name: what the model is called.
        worker: name of this process among several, for its metrics.
    """

    def __init__(self, task: Served, name: str, worker: str = ""):
        self.task, self.name, self.limits = task, name, task.limits
        self.metrics, self._memory = Metrics(task.items, worker), Memory(BODIES * self.limits.body)
        self._worker, self._readers = Worker(), ThreadPoolExecutor(READERS, "read")
        self._decoders = Decoders()
        self.watch = Watch(self._worker)
        self.queues = {operation.path: self._queue_of(operation) for operation in task.operations}
        self._queue = self.queues[task.operations[0].path]
        self.draining = False
        self.active = 0
        """Requests that were let in and are not answered yet."""
        what = task.items.capitalize()
        self.metrics.gauge(task.items, f"{what} in the server: read, waiting, computed.", lambda: self._queue.taken)
        self.metrics.gauge(f"{task.items}_limit", f"{what} that may be in the server.", lambda: self._queue.capacity)
        self.metrics.gauge("body_bytes", "Bytes of bodies that are held.", lambda: self._memory.held)
        self.metrics.gauge("draining", "1 while the server finishes what it has, and takes nothing new.", lambda: self.draining)

    def _queue_of(self, operation: AnyOperation) -> Queue[Any, Any]:
        if operation.looks:
            observe = self.metrics.timing("attention_seconds", "What the attention of a picture took.")
            return self._worker.queue(operation.run, capacity=LOOKS, most=1, observe=observe)
        limits = self.limits
        patience = PATIENCE if operation.turns == 1 else limits.deadline / 2
        capacity, observe = limits.waiting * operation.turns, self.metrics.computed
        return self._worker.queue(operation.run, capacity=capacity, most=limits.batch, observe=observe, patience=patience)

    def add(self, operation: AnyOperation) -> None:
        """Add a further operation, with a queue of its own; comes before `start`."""
        self.queues[operation.path] = self._queue_of(operation)

    def start(self) -> None:
        """Compute batches of blank rows, of every size, so that memory is there and the pace is known, and begin to work."""
        run, row, slowest = self.task.operations[0].run, self.task.blank(), 0.0
        for size in (*sizes(self.limits.batch), self.limits.batch):
            begin = time.monotonic()
            run([row] * size)
            took = time.monotonic() - begin
            slowest, self._queue.pace = max(slowest, took), took / size
        self.watch.expect(self.limits.deadline, slowest)
        self._worker.start()

    def close(self) -> None:
        """Let the threads go."""
        self._worker.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._decoders.close()

    def ended(self, seconds: float) -> bool:
        """Return whether nothing is computed any more, so many seconds after `close` at most."""
        return self._worker.ended(seconds)

    def described(self) -> dict[str, Any]:
        """Return what answers, and the limits of a request."""
        return {"name": self.name, **self.task.described()}

    def require_ready(self) -> None:
        """Refuse a request that could not be answered."""
        if self.draining:
            raise shutting_down()
        if trouble := self.watch.trouble:
            raise stuck(trouble)

    async def look_after(self) -> None:
        """Watch the thread that computes, and end the process where only another one can go on."""
        while not self.watch.lost:
            await asyncio.sleep(LOOK)
            self.watch.look(LOOK)
        log.error("%s: start the server again, as systemd does", self.watch.trouble)
        await self.idle(self.limits.deadline)  # those who wait are refused at their deadline
        logging.shutdown()
        exit_at_once(1)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Let a request in, whose answer then comes before the server goes."""
        self.require_ready()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    async def idle(self, seconds: float) -> None:
        """Wait until all requests that were let in are answered, so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.active:
                    await asyncio.sleep(0.02)

    async def respond(self, operation: AnyOperation, request: Request, fields: BaseModel) -> Response:
        """Return the answer to a request with these fields in its address.

        What can be refused is refused before a byte of the body is read.
        """
        with self.admitted(), contextlib.ExitStack() as held:
            if operation.unseen:
                raise unseen(operation.unseen)
            if operation.body.fields_in_address:
                operation.understand(fields)
            operation.body.require_type(request.headers)
            content = await self._content(request, held, self.queues[operation.path])
            requested, files = await self._aside(_read, operation, content, request.headers, fields)
            del content  # of which only the files are left, until they are decoded
            names = [file.name for file in files]
            prepared, outputs = await self._computed(operation, request, held, requested, files)
            return await self._aside(_response, operation, requested, names, prepared, outputs)

    async def _aside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of what would keep others waiting, from another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *arguments)

    async def _content(self, request: Request, held: contextlib.ExitStack, queue: Queue[Any, Any]) -> bytes:
        """Return the body of a request for that queue; its bytes count as held until ``held`` is closed."""
        require_size(request.headers, self.limits.body)
        queue.require_room()
        if self._memory.held >= self._memory.most:
            raise busy(1)
        body = Body(self._memory)
        held.callback(body.release)
        return await body.read(request, self.limits.body)

    async def _computed(
        self, operation: AnyOperation, request: Request, held: contextlib.ExitStack, requested: Any, files: list[File]
    ) -> tuple[list[Prepared[Any]], list[Any]]:
        """Return the files of a request, prepared, and the outputs of all their rows; clears ``files``."""
        expires, queue, check = time.monotonic() + self.limits.deadline, self.queues[operation.path], operation.body.check
        pixels = [] if check is None else _good(files, await self._decoders.sizes([file.content for file in files], check))
        large = max(pixels, default=0) > LARGE
        rows = None if operation.rows is None else operation.rows(requested) * len(files)

        async def outputs() -> tuple[list[Prepared[Any]], list[Any]]:
            with contextlib.ExitStack() as places:
                if rows is not None and operation.turns > 1:
                    self._require_time(queue, rows)
                if rows is not None and not large:  # a large image would hold places for as long as it waits
                    places.enter_context(queue.places(rows))
                with self._decoders.turn() if large else contextlib.nullcontext():
                    prepared = await self._prepared(operation, requested, files, pixels)
                files.clear()
                held.close()  # from here on there are only rows
                values = [row for part in prepared for row in part.rows]
                count = sum(part.places or len(part.rows) for part in prepared)
                if rows is None:
                    self._require_time(queue, count)
                if rows is None or large:
                    places.enter_context(queue.places(count))
                return prepared, await queue.answers(values, expires)

        return await while_connected(request, outputs(), expires)

    async def _prepared(
        self, operation: AnyOperation, requested: Any, files: list[File], pixels: list[int]
    ) -> list[Prepared[Any]]:
        """Return the files of a request as `Operation.prepare` makes them: images, of so many ``pixels``, or a document."""

        def prepare(content: bytes) -> Prepared[Any]:
            return operation.prepare(content, requested)

        if not pixels:
            return [await self._aside(prepare, file.content) for file in files]
        return _good(files, await self._decoders.decode([file.content for file in files], pixels, prepare))

    def _require_time(self, queue: Queue[Any, Any], rows: int) -> None:
        """Refuse what would not be computed by the deadline, at the present pace.

        An idle server refuses nothing, or nothing would be computed that shows a better pace.
        """
        seconds = rows * queue.pace
        if queue.taken and seconds > self.limits.deadline:
            items = self.task.items
            what = f"{rows:,} {items} would take about {seconds:.0f} seconds, and the deadline is {self.limits.deadline:g}"
            raise ProblemError(413, what, hint="send less at a time")


def _read(operation: AnyOperation, content: bytes, headers: Headers, fields: BaseModel) -> tuple[Any, list[File]]:
    """Return what is requested, and the files of a request."""
    fields, files = operation.body.read(content, headers, fields)
    return operation.understand(fields), files


def _response(
    operation: AnyOperation, requested: Any, names: list[str], prepared: list[Prepared[Any]], outputs: list[Any]
) -> Response:
    """Return the response with the outputs of each file's rows; a long one takes a while to write."""
    left = iter(outputs)
    parts = [Computed(name, part.context, [next(left) for _ in part.rows]) for name, part in zip(names, prepared, strict=True)]
    return JSONResponse(operation.answer(requested, parts))


def _good(files: list[File], results: Sequence[T | DataError]) -> list[T]:
    """Return what was made of files; one `ProblemError` names all of which nothing could be."""
    failed = [(file.name, error) for file, error in zip(files, results, strict=True) if isinstance(error, DataError)]
    if not failed:
        return cast(list[T], results)
    names = ", ".join(name for name, _ in failed)
    what = failed[0][1].what if len(files) == 1 else f"{len(failed)} of {len(files)} images cannot be read: {names}"
    errors = [{"image": name, "reason": error.what} for name, error in failed]
    raise ProblemError(422, what, hint=failed[0][1].hint, errors=errors)
