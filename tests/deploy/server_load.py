"""Many clients at once, as cheap as can be: they share the processor with the server that they measure."""

import asyncio
import contextlib
import gc
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Attacker = Callable[[str, int], Coroutine[Any, Any, None]]
"""What a client does to a host and a port."""


@dataclass
class Outcome:
    """What became of requests: status, seconds, and when each was sent."""

    answers: list[tuple[int, float, float]] = field(default_factory=list)
    """A status of 0 is for a connection that was cut."""

    def took(self, status: int) -> list[float]:
        """Seconds of those with that status, the shortest first."""
        return sorted(seconds for found, seconds, _ in self.answers if found == status)

    def share(self, status: int, quantile: float) -> float:
        """The seconds in which that share of those with a status were answered."""
        took = self.took(status)
        return took[min(len(took) - 1, int(quantile * len(took)))] if took else float("nan")

    @property
    def counts(self) -> Counter[int]:
        """How many had which status."""
        return Counter(status for status, _, _ in self.answers)


def request(content: bytes, path: str = "/predict", *, close: bool = True, headers: str = "") -> bytes:
    """The bytes of a request for an image; further headers end in CR and LF."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n"
    head += headers
    return (head + ("Connection: close\r\n" if close else "") + "\r\n").encode() + content


async def ask(url: str, sent: bytes) -> tuple[int, Any]:
    """The status and the document that a request is answered with; 0 where the connection is cut."""
    try:
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        try:
            writer.write(sent)
            return await answered(reader)
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError):
        return 0, None


async def answered(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """The next answer of a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


async def _timed(url: str, sent: bytes, outcome: Outcome, begin: float) -> int:
    at = time.monotonic()
    status, _ = await ask(url, sent)
    outcome.answers.append((status, time.monotonic() - at, at - begin))
    return status


def arriving(url: str, requests: Sequence[bytes], rate: float, seconds: float) -> Outcome:
    """Requests that arrive so many a second, whether the server keeps up or not."""

    async def run() -> Outcome:
        gc.freeze()  # or the clients stop now and then for what was there before
        outcome, begin, asked = Outcome(), time.monotonic(), []
        for number, sent in zip(range(int(rate * seconds)), itertools.cycle(requests), strict=False):
            await asyncio.sleep(begin + number / rate - time.monotonic())
            asked.append(asyncio.ensure_future(_timed(url, sent, outcome, begin)))
        await asyncio.gather(*asked)
        return outcome

    return asyncio.run(run())


def besieged(
    url: str, worst: Sequence[bytes], good: Sequence[bytes], attackers: int, seconds: float, others: Sequence[Attacker] = ()
) -> tuple[Outcome, Outcome]:
    """What became of requests of so many clients who never wait, and of two others, who come again as they are told.

    Further attackers do what they do, to a host and a port, again and again.
    """

    async def again(attacker: Attacker, begin: float) -> None:
        while (left := begin + seconds - time.monotonic()) > 0:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(left):
                    await attacker(str(urlsplit(url).hostname), urlsplit(url).port or 80)

    async def one(outcome: Outcome, begin: float, own: Any, patience: float) -> None:
        while time.monotonic() - begin < seconds:
            if await _timed(url, next(own), outcome, begin) in (429, 503):
                await asyncio.sleep(patience)

    async def run() -> tuple[Outcome, Outcome]:
        bad, kept, begin = Outcome(), Outcome(), time.monotonic()
        wrong, right = itertools.cycle(worst), itertools.cycle(good)
        attack = [one(bad, begin, wrong, 0.02) for _ in range(attackers)]
        attack += [again(attacker, begin) for attacker in others]
        await asyncio.gather(*attack, *(one(kept, begin, right, 1.0) for _ in range(2)))
        return bad, kept

    return asyncio.run(run())


def saturating(url: str, requests: Sequence[bytes], clients: int, seconds: float) -> Outcome:
    """So many clients, of whom each asks again as soon as it is answered, or a second after it is refused."""

    async def one(outcome: Outcome, begin: float, own: Any) -> None:
        while time.monotonic() - begin < seconds:
            if await _timed(url, next(own), outcome, begin) == 429:
                await asyncio.sleep(1)

    async def run() -> Outcome:
        outcome, begin, shared = Outcome(), time.monotonic(), itertools.cycle(requests)
        await asyncio.gather(*(one(outcome, begin, shared) for _ in range(clients)))
        return outcome

    return asyncio.run(run())
