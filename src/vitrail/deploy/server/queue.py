"""Bounded queues in front of the one thread that computes.

A request takes places first, and is refused at once where none are left. As soon as the thread is free it takes what waits,
up to a full batch: batches grow with the load by themselves, and no request waits for a batch to fill.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

PATIENCE = 3.0
"""Most seconds of work that may be waiting when a request is accepted; an overload is over after this time."""
UNFINISHED: Any = object()
"""Result of a value that is to be computed again, among others, with what it holds by then."""
FORGET = 0.2
"""Weight of the newest batch in the moving average of the pace."""
SLOWER = 2.0
"""Times the known pace that a batch counts for at most: the process may have been stopped while it was computed."""

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")


class FullError(Exception):
    """No place is left; ``seconds`` is how long the waiting work will take."""

    def __init__(self, seconds: float):
        super().__init__("the server is busy")
        self.seconds = seconds


class FailedError(Exception):
    """The computing thread has failed."""


@dataclass(eq=False)
class Job(Generic[T, R]):
    """Something to compute, unless it is too late by then or nobody waits for it any more."""

    value: T
    expires: float
    answer: asyncio.Future[R]
    waiting: "deque[Job[T, R]]"
    """The jobs of the same request that wait, in the order of their turns."""


class Queue(Generic[T, R]):
    """A number of places, and the jobs waiting in them. Made by `Worker.queue`; used by the event loop, except `work`.

    Args:
        compute: values to as many results, in the worker's thread.
        capacity: places.
        most: values that go into one call of ``compute``.
        patience: most seconds of work that may be waiting when a request is accepted.
        changed: wakes the worker when something waits.
        observe: called with how many values a call computed, and in how many seconds.
    """

    def __init__(
        self,
        compute: Callable[[list[T]], Sequence[R]],
        *,
        capacity: int,
        most: int,
        changed: threading.Condition,
        observe: Callable[[int, float], None],
        patience: float = PATIENCE,
    ):
        self._compute, self.capacity, self._most, self._patience = compute, capacity, most, patience
        self._changed, self._observe = changed, observe
        self._waiting: deque[deque[Job[T, R]]] = deque()  # of each request its `Job.waiting`, unless it is empty
        self.taken = 0
        self.pace = 0.0
        """Seconds that a value takes, as far as is known."""

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting))

    def require_room(self, count: int = 1) -> None:
        """Raise `FullError` unless there are so many places, and what is ahead will soon be done."""
        ahead = self.taken * self.pace
        if self.taken + count > self.capacity or ahead > self._patience:
            raise FullError(ahead)

    @contextlib.contextmanager
    def places(self, count: int) -> Iterator[None]:
        """Hold so many places."""
        self.require_room(count)
        self.taken += count
        try:
            yield
        finally:
            self.taken -= count

    async def answers(self, values: Sequence[T], expires: float) -> list[R]:
        """The results, for values that have their places.

        Args:
            values: to compute.
            expires: when on the clock of `time.monotonic` it is too late to begin.

        Raises:
            FailedError: computing them failed.
        """
        if not values:
            return []
        loop = asyncio.get_running_loop()
        waiting = deque[Job[T, R]]()
        jobs = [Job(value, expires, loop.create_future(), waiting) for value in values]
        with self._changed:
            self._wait(jobs)
            self._changed.notify()
        try:
            return await asyncio.gather(*(job.answer for job in jobs))
        finally:
            self._forget([job for job in jobs if not job.answer.done() or job.answer.cancelled()])

    def _wait(self, jobs: list[Job[T, R]]) -> None:
        """Append jobs to those of their requests that wait, with the lock held, unless nobody waits for them any more."""
        for job in jobs:
            if not job.answer.cancelled():
                if not job.waiting:
                    self._waiting.append(job.waiting)
                job.waiting.append(job)

    def _forget(self, jobs: list[Job[T, R]]) -> None:
        """Drop all jobs of a request that are left: nobody waits for them any more."""
        for job in jobs:
            job.answer.cancel()
        if jobs:
            with self._changed:
                jobs[0].waiting.clear()
                self._waiting = deque(filter(None, self._waiting))

    def work(self) -> None:
        """Compute what waits, as much as goes at once."""
        jobs = self._take()
        if not jobs:
            return
        results = self._results(jobs)
        with self._changed:
            self._wait([job for job, result in zip(jobs, results, strict=True) if result is UNFINISHED])
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            jobs[0].answer.get_loop().call_soon_threadsafe(_deliver, jobs, results)

    def _results(self, jobs: list[Job[T, R]]) -> list[R | Exception]:
        """Compute the results of jobs. Where they fail together each is computed alone, so that one fails for no other."""
        begin = time.monotonic()
        try:
            results = self._compute([job.value for job in jobs])
        except Exception as error:
            log.error("a batch of %d failed: %r", len(jobs), error, exc_info=log.isEnabledFor(logging.DEBUG))
            if len(jobs) == 1:
                return [FailedError("the model failed")]
            return [result for job in jobs for result in self._results([job])]
        took = time.monotonic() - begin
        self._learn_pace(len(jobs), took / len(jobs))
        self._observe(len(jobs), took)
        return list(results)

    def _learn_pace(self, count: int, each: float) -> None:
        """Small batches take longer per image, so they count only if they are faster than the known pace."""
        if not self.pace:
            self.pace = each
        elif count == self._most or each < self.pace:
            self.pace = (1 - FORGET) * self.pace + FORGET * min(each, SLOWER * self.pace)

    def _take(self) -> list[Job[T, R]]:
        """As many as go at once, one of each request in turn.

        Where fewer wait it is a power of two: engines keep something for every size they have met.
        """
        found: list[Job[T, R]] = []
        with self._changed:
            count = max((size for size in sizes(self._most) if size <= len(self)), default=0)
            while self._waiting and len(found) < count:
                jobs = self._waiting.popleft()
                job = jobs.popleft()
                if jobs:
                    self._waiting.append(jobs)
                if time.monotonic() < job.expires:
                    found.append(job)
        return found


def sizes(most: int) -> list[int]:
    """Return the sizes of batches of up to ``most``: 1, 2, 4, …, and ``most``."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def _deliver(jobs: list[Job[Any, Any]], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.answer.done() or result is UNFINISHED:
            continue
        if isinstance(result, Exception):
            job.answer.set_exception(result)
        else:
            job.answer.set_result(result)


class Worker:
    """The thread that computes, for several queues in turn: none of them can keep another from its turn."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: list[Queue[Any, Any]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self.turn, self.working = 0, False
        """How often a queue has had its turn, and whether one has it now."""

    def queue(
        self,
        compute: Callable[[list[T]], Sequence[R]],
        *,
        capacity: int,
        most: int,
        observe: Callable[[int, float], None],
        patience: float = PATIENCE,
    ) -> Queue[T, R]:
        """Return a further queue; see `Queue`."""
        queue = Queue(compute, capacity=capacity, most=most, changed=self._changed, observe=observe, patience=patience)
        self._queues.append(queue)
        return queue

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def close(self) -> None:
        """Begin nothing new."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def dead(self) -> bool:
        """Return whether the thread has ended although nobody has closed it."""
        return self._thread.ident is not None and not self._thread.is_alive() and not self._closed

    def ended(self, seconds: float) -> bool:
        """Return whether the thread has ended, at most so many seconds after `close`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or any(map(len, self._queues)))
                if self._closed:
                    return
            for queue in self._queues:
                self.turn, self.working = self.turn + 1, True
                queue.work()
                self.working = False
