"""Pictures are decoded by a few threads, of which neither a request nor large pictures can hold all."""

import asyncio
import contextlib
import threading

import pytest

from vitrail.deploy.server.http import decoders
from vitrail.deploy.server.http.decoders import LARGE, MOST_LARGE, MOST_PIXELS, Decoders
from vitrail.deploy.server.http.problems import ProblemError
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


def pixels_of(content):
    return LARGE + (content == BIG)


async def decode(decoders, contents, work):
    return await decoders.decode(contents, await decoders.sizes(contents, pixels_of), work)


def decoding(test):
    """Run a test with decoders, and let everything go at its end."""

    async def run():
        found, work = Decoders(), Work()
        try:
            await test(found, work)
        finally:
            for event in work.go.values():
                event.set()
            found.close()

    asyncio.run(run())


def test_large_pictures_wait_for_each_other_alone():
    async def test(found, work):
        large = [asyncio.ensure_future(decode(found, [BIG], work)) for _ in range(3)]
        await work.until(BIG, 1)
        work.go[SMALL].set()
        assert await decode(found, [SMALL] * 5, work) == ["small"] * 5
        work.go[BIG].set()
        assert await asyncio.gather(*large) == [["big"]] * 3
        assert work.most[BIG] == 1

    decoding(test)


def test_a_request_of_many_pictures_leaves_a_thread_to_others():
    async def test(found, work):
        many = asyncio.ensure_future(decode(found, [SMALL] * 20, work))
        await work.until(SMALL, 1)
        one = asyncio.ensure_future(decode(found, [SMALL], work))
        await work.until(SMALL, 2)
        work.go[SMALL].set()
        assert await one == ["small"] and await many == ["small"] * 20
        assert work.most[SMALL] == decoders.THREADS == 2

    decoding(test)


def test_so_many_requests_with_large_pictures_wait_and_more_are_refused():
    async def test(found, work):
        with contextlib.ExitStack() as waiting:
            for _ in range(MOST_LARGE):
                waiting.enter_context(found.turn())
            with pytest.raises(FullError), found.turn():
                pass
        with found.turn():
            pass

    decoding(test)


def test_a_request_of_many_large_pictures_is_refused_before_one_is_decoded():
    async def test(found, work):
        most = MOST_PIXELS // (LARGE + 1)
        assert await found.sizes([SMALL] * 1000 + [BIG] * most, pixels_of) == [LARGE] * 1000 + [LARGE + 1] * most
        with pytest.raises(ProblemError, match="pixels together"):
            await found.sizes([BIG] * (most + 1), pixels_of)

    decoding(test)


def test_what_cannot_be_decoded_stands_in_its_place():
    def fail(content):
        if content == BIG:
            raise DataError("damaged")
        return "fine"

    async def test(found, work):
        first, second, third = await found.decode([SMALL, BIG, SMALL], [1, 2, 1], fail)
        assert (first, third) == ("fine", "fine") and second.what == "damaged"

    decoding(test)
