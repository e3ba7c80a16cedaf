"""Attack a server: the worst pictures, clients that stall, hang up or send rubbish, guessed tokens, killed workers.

    python benchmarks/soak/soak_attacks.py [MODEL] [--seconds 600] [--workers 1] [--quick]

Part of ``make soak``. Clients, server and, in the second siege, nginx share the cores.
"""

import argparse
import asyncio
import contextlib
import io
import os
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

sys.path.append(str(Path(__file__).parents[2] / "tests/deploy"))
from server_load import ask, besieged, request
from server_running import Process
from soak_shared import marked, ms, photographs, save_model
from test_server_proxy import NGINX, TOKEN, Proxy

GROWTH, BACK_WITHIN, MOST_MEMORY = 0.10, 2.0, 2 * 2**30


def hostile(server: Process, url: str, seconds: float, token: str = "") -> Iterator[tuple[str, str]]:
    """Let twenty clients do the worst they can without a pause, beside two who send photographs; at a URL of the server."""
    headers = f"Authorization: Bearer {token}\r\n" if token else ""
    good, worst = [request(content, headers=headers) for content in photographs()], worst_pictures(headers)
    others = [_stall, _stall, _stall, _hang_up, _hang_up, _rubbish, *([_guess] if token else [])]
    besieged(url, worst, good, 14, max(5.0, seconds / 10), others)
    before = memory(server)
    with peak_memory(server) as peak:
        bad, answers = besieged(url, worst, good, 14, seconds, others)
    growth, counts, slowest = memory(server) / before - 1, dict(answers.counts), answers.share(200, 0.99)
    yield (
        f"{seconds:.0f} s of 20 clients: 14 with the worst pictures, 3 who never read, 2 who hang up, 1 with rubbish",
        f"{dict(bad.counts)}",
    )
    yield "two good clients beside them", marked(set(counts) <= {200, 429, 503}, f"{counts}")
    yield "their answers, median and 99 %", marked(slowest <= 1, f"{ms(answers.share(200, 0.5))}, {ms(slowest)}")
    yield "memory, growth", marked(growth <= GROWTH, f"{before / 2**20:.0f} MiB, {100 * growth:+.1f} %")
    yield "memory, the most", marked(peak[0] < MOST_MEMORY, f"{peak[0] / 2**20:.0f} MiB")


async def _stall(host: str, port: int) -> None:
    """Ask again and again, and read nothing until the connection is cut off."""
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (host, port))
        while True:
            await loop.sock_sendall(connection, b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)


async def _hang_up(host: str, port: int) -> None:
    """Go in the middle of a body, or as soon as it is sent."""
    _, writer = await asyncio.open_connection(host, port)
    sent = request(photographs()[0])
    writer.write(sent[: random.randrange(len(sent))] if random.random() < 0.5 else sent)
    await asyncio.sleep(random.uniform(0, 0.05))
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def _rubbish(host: str, port: int) -> None:
    """Send what is no HTTP, or no request that there is."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(random.choice([random.randbytes(2000), b"GET /" + b"a" * 10_000, request(random.randbytes(50_000))]))
    await asyncio.wait_for(reader.read(), 15)
    writer.close()


def memory(server: Process) -> int:
    """Bytes of all its processes that are in memory; what they share counts once."""
    first = psutil.Process(server.process.pid)
    return sum(process.memory_full_info().pss for process in (first, *first.children(recursive=True)))


@contextlib.contextmanager
def peak_memory(server: Process) -> Iterator[list[int]]:
    """The largest `memory` within the block, looked at ten times a second."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            with contextlib.suppress(psutil.NoSuchProcess):
                peak[0] = max(peak[0], memory(server))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(look)
        yield peak
        over.set()


async def _guess(host: str, port: int) -> None:
    """Guess a token."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /model HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\nConnection: close\r\n\r\n")
    await asyncio.wait_for(reader.read(), 15)
    writer.close()


def worst_pictures(headers: str = "") -> list[bytes]:
    """Requests of few bytes for the largest pictures that are accepted, one that is not, and forms of many."""
    wide = Image.fromarray(np.zeros((5000, 5000), np.uint16))
    pictures = [
        *(encoded(Image.new(mode, (5000, 5000)), format) for mode in ("RGB", "RGBA") for format in ("PNG", "WEBP")),
        encoded(wide, "PNG"),
        encoded(Image.new("L", (1, 25_000_000)), "PNG"),
        encoded(Image.new("RGB", (9000, 9000)), "WEBP"),
        many_scans(encoded(Image.new("RGB", (5000, 5000)), "JPEG"), 64),
    ]
    single = [request(picture, headers=headers) for picture in pictures]
    return [*single, *(form([picture] * 32, headers) for picture in pictures)]


def encoded(image: Image.Image, format: str) -> bytes:
    file = io.BytesIO()
    image.save(file, format, lossless=True, progressive=True)
    return file.getvalue()


def many_scans(jpeg: bytes, count: int) -> bytes:
    """A progressive JPEG whose last scan, of a few bytes, comes again and again."""
    last = jpeg.rindex(b"\xff\xda")
    tables = jpeg[:last].rindex(b"\xff\xc4")
    return jpeg[:-2] + jpeg[tables:-2] * (count - jpeg.count(b"\xff\xda")) + jpeg[-2:]


def form(pictures: list[bytes], headers: str = "") -> bytes:
    """A request with several pictures."""
    head = b'--edge\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
    body = b"".join(head + picture + b"\r\n" for picture in pictures) + b"--edge--\r\n"
    words = (
        f"{headers}Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + words.encode() + body


def killed(model: Path, rounds: int, workers: int = 2) -> Iterator[tuple[str, str]]:
    """Kill a worker of a server, time after time, while four clients ask for predictions that they know."""
    words = [sys.executable, "-m", "vitrail", "serve", str(model), "--port", "0", "--workers", str(workers)]
    chance = random.Random(0)
    with Process(*words[1:]) as server, ThreadPoolExecutor(5) as threads:
        url = server.url
        threads.submit(server.process.stderr.read)  # what is said of the killed
        expected = {content: _label(url, content) for content in photographs()}
        found: list[tuple[float, float, bool | None]] = []
        over = threading.Event()

        def client(content: bytes) -> None:
            while not over.is_set():
                begin, label = time.monotonic(), _label(url, content)
                found.append((begin, time.monotonic(), None if label is None else label == expected[content]))

        for content in (*expected, *expected):
            threads.submit(client, content)
        slowest = 0.0
        for _ in range(rounds):
            time.sleep(chance.uniform(0.2, 3))
            at, victim = time.monotonic(), chance.choice(_workers(server))
            victim.kill()
            while not (after := [end for begin, end, good in found if good and begin > at]) and time.monotonic() < at + 60:
                time.sleep(0.005)
            slowest = max(slowest, min(after, default=float("inf")) - at)
        over.set()
        time.sleep(1)
    wrong, answers = sum(good is False for *_, good in found), sum(good is not None for *_, good in found)
    yield (
        f"`kill -9` of one of {workers} workers, {rounds} times: answers, wrong ones",
        marked(not wrong, f"{answers:,}, {wrong}"),
    )
    yield "longest time from a kill to the next answer", marked(slowest <= BACK_WITHIN, f"{slowest:.2f} s")


def _label(url: str, content: bytes) -> str | None:
    """The best label of a picture, where there is an answer."""
    status, answer = asyncio.run(ask(url, request(content)))
    if status == 0:
        time.sleep(0.02)
        return None
    return answer["predictions"][0]["predictions"][0]["label"] if status == 200 else f"status {status}"


def _workers(server: Process) -> list[psutil.Process]:
    """Return the workers of a server that live."""
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline())]


def _table(model: Path, seconds: float, workers: int, kills: int) -> Iterator[tuple[str, str]]:
    with Process("-m", "vitrail", "serve", str(model), "--port", "0", "--workers", str(workers)) as server:
        yield from hostile(server, server.url, seconds)
        server.terminate()
        yield "exit code at SIGTERM", marked((code := server.ended()[0]) == 0, str(code))
    if NGINX is None:
        yield "the same behind nginx", "nginx is not installed"
    else:
        yield from _behind_proxy(model, seconds)
    yield from killed(model, kills)


def _behind_proxy(model: Path, seconds: float) -> Iterator[tuple[str, str]]:
    """Repeat the siege, with a guesser of tokens, through nginx as docs/deploy.md configures it."""
    words = ("-m", "vitrail", "serve", str(model), "--port", "0")
    with Process(*words, environment={**os.environ, "VITRAIL_TOKEN": TOKEN}) as server, tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(Path(folder))
        proxy.lead_to(int(server.url.rpartition(":")[2]))
        with proxy.up():
            time.sleep(1)
            for what, found in hostile(server, proxy.url, seconds, TOKEN):
                yield f"behind nginx: {what}", found


def main() -> None:
    """Everything at length, as a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", nargs="?", help="anything that vitrail serve takes; a ViT-Ti/16 that has learned nothing by default"
    )
    parser.add_argument("--seconds", type=float, default=600, help="of the siege")
    parser.add_argument("--workers", type=int, default=1, help="of the server under siege")
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    given = parser.parse_args()
    seconds, kills = (10.0, 3) if given.quick else (given.seconds, 100)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(given.model) if given.model else save_model(Path(folder) / "model", "ViT-Ti/16")
        print("| what | found |\n|---|---|", flush=True)
        for what, found in _table(model, seconds, given.workers, kills):
            print(f"| {what} | {found} |", flush=True)


if __name__ == "__main__":
    main()
