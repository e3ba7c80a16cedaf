"""Pictures are decoded by a few threads, of which neither a request nor large pictures can hold all."""

import asyncio
import threading

import pytest

from vitrail.deploy.server import decoders
from vitrail.deploy.server.decoders import LARGE, MOST_LARGE, Decoders
from vitrail.deploy.server.queue import FullError
from vitrail.errors import DataError

SMALL, BIG = b"small", b"big"


class Work:
    """Decodes, when it may, and remembers how many of each kind were decoded at a time."""

    def __init__(self):
        self.go = {SMALL: threading.Event(), BIG: threading.Event()}
        self.now, self.most, self._lock = dict.fromkeys(self.go, 0), dict.fromkeys(self.go, 0), threading.Lock()

    def __call__(self, content):
        with self._lock:
            self.now[content] += 1
            self.most[content] = max(self.most[content], self.now[content])
        assert self.go[content].wait(10)
        with self._lock:
            self.now[content] -= 1
        return content.decode()

    async def until(self, content, count):
        async with asyncio.timeout(10):
            while self.now[content] < count:
                await asyncio.sleep(0.001)


def decoding(test):
    """Run a test with decoders, and let everything go at its end."""

    async def run():
        found, work = Decoders(lambda content: LARGE + (content == BIG)), Work()
        try:
            await test(found, work)
        finally:
            for event in work.go.values():
                event.set()
            found.close()

    asyncio.run(run())


def test_large_pictures_wait_for_each_other_alone():
    async def test(found, work):
        large = [asyncio.ensure_future(found.decode([BIG], work)) for _ in range(3)]
        await work.until(BIG, 1)
        work.go[SMALL].set()
        assert await found.decode([SMALL] * 5, work) == ["small"] * 5
        work.go[BIG].set()
        assert await asyncio.gather(*large) == [["big"]] * 3
        assert work.most[BIG] == 1

    decoding(test)


def test_a_request_of_many_pictures_leaves_a_thread_to_others():
    async def test(found, work):
        many = asyncio.ensure_future(found.decode([SMALL] * 20, work))
        await work.until(SMALL, 1)
        one = asyncio.ensure_future(found.decode([SMALL], work))
        await work.until(SMALL, 2)
        work.go[SMALL].set()
        assert await one == ["small"] and await many == ["small"] * 20
        assert work.most[SMALL] == decoders.THREADS == 2

    decoding(test)


def test_large_pictures_that_would_wait_too_long_are_refused_and_leave_no_trace():
    async def test(found, work):
        waiting = [asyncio.ensure_future(found.decode([BIG], work)) for _ in range(MOST_LARGE)]
        await work.until(BIG, 1)
        with pytest.raises(FullError):
            await found.decode([BIG], work)
        waiting.pop().cancel()
        await asyncio.sleep(0)
        work.go[BIG].set()
        assert await found.decode([BIG], work) == ["big"]
        assert await asyncio.gather(*waiting) == [["big"]] * (MOST_LARGE - 1)

    decoding(test)


def test_what_cannot_be_decoded_stands_in_its_place():
    def fail(content):
        if content == BIG:
            raise DataError("damaged")
        return "fine"

    async def test(found, work):
        first, second, third = await found.decode([SMALL, BIG, SMALL], fail)
        assert (first, third) == ("fine", "fine") and second.what == "damaged"

    decoding(test)
