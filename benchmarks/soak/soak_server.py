"""Overloads, terminates and fuzzes a server to see whether it keeps its promises; part of ``make soak``.

python benchmarks/soak/soak_server.py [--seconds 3600] [--quick]
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests/deploy"))
from server_load import Outcome, arriving, ask, request, saturating
from server_running import Process, of_shades, shade
from soak_attacks import GROWTH, memory
from soak_shared import marked, ms, photographs, save_model
from test_server_fuzz import fuzz

FACTOR = 3
REFUSED_WITHIN, RECOVERED_WITHIN = 0.05, 5.0


def overload(server: Process, seconds: float) -> Iterator[tuple[str, str]]:
    """Three times as many requests as it can answer: who is refused is refused at once, and afterwards all is as before."""
    requests = [request(content) for content in photographs()]
    usual = saturating(server.url, requests, 1, 3.0).share(200, 0.5)
    full = saturating(server.url, requests, 32, max(5.0, seconds / 6))
    rate = full.counts[200] / max(at + took for _, took, at in full.answers)
    before = memory(server)
    outcome = arriving(server.url, requests, FACTOR * rate, seconds)
    recovered, after = recovery(server, requests[0], usual), memory(server)
    refused, growth, counts = outcome.share(429, 0.99), after / before - 1, dict(outcome.counts)
    yield f"{seconds:.0f} s of {FACTOR * rate:.0f} requests/s, where {rate:.0f} can be answered", f"{counts}"
    yield "refusals, median and 99 %", marked(refused <= REFUSED_WITHIN, f"{ms(outcome.share(429, 0.5))}, {ms(refused)}")
    yield "answers under overload, median and 99 %", f"{ms(outcome.share(200, 0.5))}, {ms(outcome.share(200, 0.99))}"
    yield "answered or refused, nothing else", marked(set(counts) <= {200, 429}, f"{sum(counts.values()):,}")
    yield "memory, growth under overload", marked(growth <= GROWTH, f"{before / 2**20:.0f} MiB, {100 * growth:+.1f} %")
    yield f"back to {ms(usual)} after", marked(recovered <= RECOVERED_WITHIN, f"{recovered:.1f} s")


def recovery(server: Process, sent: bytes, usual: float) -> float:
    """Seconds until three requests in a row are answered in at most twice the usual time."""
    begin, good = time.monotonic(), 0
    while good < 3 and time.monotonic() - begin < 60:
        at = time.monotonic()
        status, _ = asyncio.run(ask(server.url, sent))
        good = good + 1 if status == 200 and time.monotonic() - at < 2 * usual else 0
    return time.monotonic() - begin


def terminated(rounds: int, *, flight: int = 100) -> str:
    """SIGTERM with so many requests in flight, so many times: every one of them is answered, and correctly."""
    good = 0
    for number in range(rounds):
        with of_shades(0.1) as server:
            good += asyncio.run(_terminated(server, flight, random.Random(number).uniform(0, 0.4)))
            assert server.ended()[0] == 0
    return marked(good == rounds * flight, f"{good:,}/{rounds * flight:,}")


async def _terminated(server: Process, flight: int, after: float) -> int:
    async def one(value: int) -> bool:
        status, answer = await ask(server.url, request(shade(value), close=False))
        return status == 200 and answer["predictions"][0]["predictions"][0]["label"] == str(value)

    pending = [asyncio.ensure_future(one(value)) for value in range(flight)]
    while server_holds(await _metrics(server)) < flight:
        await asyncio.sleep(0.01)
    await asyncio.sleep(after)
    server.terminate()
    return sum(await asyncio.gather(*pending))


async def _metrics(server: Process) -> str:
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return text


def server_holds(metrics: str) -> float:
    """Images that are in the server, or were answered by it."""
    names = ("vitrail_images", 'vitrail_requests_total{path="/predict",status="200"}')
    return sum(float(line.split()[-1]) for line in metrics.splitlines() if line.split(" ")[0] in names)


def crossed(clients: int, each: int) -> str:
    """So many clients, each of whom asks so many times for what only it knows the answer of."""

    async def client(server: Process, number: int) -> int:
        good = 0
        for step in range(each):
            value = (37 * number + step) % 256
            status, answer = await ask(server.url, request(shade(value)))
            good += status == 200 and answer["predictions"][0]["predictions"][0]["label"] == str(value)
        return good

    async def run(server: Process) -> int:
        return sum(await asyncio.gather(*(client(server, number) for number in range(clients))))

    with of_shades(0.002) as server:
        good = asyncio.run(run(server))
    return marked(good == clients * each, f"{good:,}/{clients * each:,}")


def soaked(server: Process, seconds: float) -> Iterator[tuple[str, str]]:
    """Four fifths of what it can answer, with clients among them that go away, stop in the middle, or send rubbish."""
    good = [request(content) for content in photographs()]
    bad = [good[0][:500], request(b"rubbish"), request(bytes(10**6)), b"NONSENSE\r\n\r\n", request(good[1], "/attention")]
    full = saturating(server.url, good, 32, 5.0)
    rate, chance = 0.8 * full.counts[200] / 5.0, random.Random(0)
    outcome, first, begin = Outcome(), 0, time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        sent = [chance.choice(bad) if chance.random() < 0.1 else chance.choice(good) for _ in range(200)]
        outcome.answers += arriving(server.url, sent, rate, min(30.0, seconds - passed + 1)).answers
        first = first or memory(server)
    growth, counts = memory(server) / first - 1, dict(outcome.counts)
    yield f"{seconds / 60:.1f} min of {rate:.0f} requests/s, a tenth of them bad", f"{counts}"
    yield "an error of the server", marked(not any(status >= 500 for status in counts), f"{sum(counts.values()):,} requests")
    yield "memory, growth", marked(growth <= GROWTH, f"{first / 2**20:.0f} MiB, {100 * growth:+.1f} %")


def _table(folder: Path, seconds: float, *, quick: bool) -> Iterator[tuple[str, str]]:
    model = save_model(folder / "model", "ViT-Ti/16" if quick else "ViT-S/16")

    def with_server(trial: Callable[[Process], Iterator[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
        with Process("-m", "vitrail", "serve", str(model), "--port", "0") as server:
            yield from trial(server)
            server.terminate()
            yield "exit code at SIGTERM", marked((code := server.ended()[0]) == 0, str(code))

    yield from with_server(lambda server: overload(server, 5 if quick else 60))
    yield "correct answers of 100 in flight at SIGTERM", terminated(1 if quick else 20)
    yield "answers that reach the client that asked, 50 clients at once", crossed(50, 4 if quick else 200)
    yield "requests made from the description, no error of the server", f"{fuzz(200 if quick else 10_000):,}"
    yield from with_server(lambda server: soaked(server, 5 if quick else seconds))


def main() -> None:
    """Everything at length, as a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="of the last trial, which never stops by itself")
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("| what | found |\n|---|---|", flush=True)
        for what, found in _table(Path(folder), given.seconds, quick=given.quick):
            print(f"| {what} | {found} |", flush=True)


if __name__ == "__main__":
    main()
