"""Servers to be asked in tests and trials: of a tiny model, or of one whose every move is known."""

import argparse
import contextlib
import functools
import io
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image

import vitrail
from vitrail.deploy.predictor import in_python
from vitrail.deploy.server import running
from vitrail.deploy.server.http.access import Access
from vitrail.deploy.server.http.app import application
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.images import Look
from vitrail.deploy.server.operation import Served
from vitrail.deploy.server.service import Service
from vitrail.tasks.classification.predictor import LabelPredictor
from vitrail.tasks.classification.service import ServedLabels
from vitrail.weights.model_folder.folder import TrainedModel

SHADES = 256
PREPARATION = vitrail.Preparation.standard((8, 8))


def tiny(classes: int = 5) -> TrainedModel:
    """A ViT of two small layers that has learned nothing."""
    torch.manual_seed(0)
    shape = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
    model = vitrail.create_model("ViT-Ti/16", **shape, num_classes=classes).eval()
    return TrainedModel(model, [f"label {number}" for number in range(classes)], vitrail.Preparation.standard((32, 32)))


def noise(seed: int, size: tuple[int, int] = (40, 30)) -> bytes:
    """A PNG of noise, width by height."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return png(Image.fromarray(pixels))


def shade(value: int) -> bytes:
    """A small PNG of one grey, which `Shades` recognises."""
    return png(Image.new("RGB", (8, 8), (value,) * 3))


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@dataclass
class Shades:
    """A model that says which grey an image is. It can be held, and be made to fail; it remembers what it was asked."""

    seconds: float = 0.0
    fails: bool = False
    go: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    batches: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go.set()

    @property
    def predictor(self) -> LabelPredictor:
        return LabelPredictor("shades", [str(value) for value in range(SHADES)], False, PREPARATION, self._logits)

    def _logits(self, pixels: torch.Tensor) -> torch.Tensor:
        shades = pixels[:, 0, 0, 0].long()
        self.batches.append(shades.tolist())
        self.begun.set()
        assert self.go.wait(30)
        time.sleep(self.seconds)
        if self.fails:
            raise RuntimeError("the engine is broken")
        return 20.0 * torch.nn.functional.one_hot(shades, SHADES).float()

    def hold(self) -> None:
        """From now on it answers nothing until ``go`` is set."""
        self.batches.clear()
        self.go.clear()
        self.begun.clear()


def client(url: str, **options: Any) -> httpx.Client:
    """Somebody who asks; without the certificates of the web, which take long to load."""
    return httpx.Client(base_url=url, timeout=30, verify=False, limits=httpx.Limits(max_connections=None), **options)


@dataclass(frozen=True)
class Running:
    """A server of this process."""

    url: str
    port: int
    service: Service
    server: running.Server
    client: httpx.Client

    def post(self, content: bytes, path: str = "/predict", **options: object) -> httpx.Response:
        options.setdefault("headers", {"Content-Type": "image/png"})
        return self.client.post(path, content=content, **options)

    def later(self, content: bytes, path: str = "/predict") -> "Later":
        def call() -> httpx.Response:
            with client(self.url) as other:
                return other.post(path, content=content, headers={"Content-Type": "image/png"})

        return Later(call)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something that is about to be."""
        end = time.monotonic() + 10
        while not what():
            assert time.monotonic() < end, "it never came"
            time.sleep(0.005)

    def taken(self, count: int) -> None:
        """Wait until so many images, or pieces of texts, are in the server."""
        self.until(lambda: self.service._queue.taken == count)


def received(connection: socket.socket) -> bytes:
    """What comes on a connection until the server closes it."""
    found = b""
    while more := connection.recv(65536):
        found += more
    return found


class Later:
    """A call whose result is asked for later."""

    def __init__(self, call: Callable[[], httpx.Response]):
        self._found: list[httpx.Response | Exception] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], httpx.Response]) -> None:
        try:
            self._found.append(call())
        except Exception as error:
            self._found.append(error)

    @property
    def result(self) -> httpx.Response:
        self._thread.join(30)
        (found,) = self._found
        if isinstance(found, Exception):
            raise found
        return found


@contextmanager
def serving(
    predictor: LabelPredictor | None = None,
    limits: Limits | None = None,
    *,
    look: Look | None = None,
    relevance: Look | None = None,
    token: str | None = None,
    origins: frozenset[str] = frozenset(),
    on_answer: Callable[[str], None] | None = None,
) -> Iterator[Running]:
    """A server of images in a thread, until the end of the block."""
    task = ServedLabels(predictor or in_python(tiny()), limits or Limits(), look, "it is a test", relevance)
    with serving_by(task, "tiny", token=token, origins=origins, on_answer=on_answer) as running_now:
        yield running_now


@contextmanager
def serving_by(
    task: Served,
    name: str,
    *,
    token: str | None = None,
    origins: frozenset[str] = frozenset(),
    on_answer: Callable[[str], None] | None = None,
) -> Iterator[Running]:
    """A server in a thread, until the end of the block."""
    service = Service(task, name)
    started, bound = threading.Event(), running.listen("127.0.0.1", 0)
    server = running.Server(application(service, Access(token, origins), on_answer), service, started.set)
    service.start()
    threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True).start()
    assert started.wait(10)
    url, port = running.address(bound), bound.getsockname()[1]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with client(url, headers=headers) as own:
            yield Running(url, port, service, server, own)
    finally:
        server.should_exit = True  # it closes its socket and goes, for which nobody need wait
        service.close()


# in a process of its own


class Process:
    """A server in a process of its own."""

    def __init__(self, *words: str, environment: dict[str, str] | None = None):
        self.process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True, env=environment)

    @functools.cached_property
    def said(self) -> str:
        """The first line on stderr that ends in its address; what is said of the model comes before."""
        assert self.process.stderr is not None
        return next((line for line in self.process.stderr if "http://" in line), "")

    @property
    def url(self) -> str:
        return self.said.split()[-1]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, str]:
        """The exit code, and what else it has said."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()


def of_shades(seconds: float, *options: str) -> Process:
    """`Shades` that take so long for a batch."""
    return Process(str(Path(__file__)), "--seconds", str(seconds), *options)


def main() -> None:
    """Serve `Shades` until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    service = Service(ServedLabels(Shades(given.seconds).predictor, Limits(batch=given.batch)), "shades")
    with running.listen("127.0.0.1", 0) as bound:
        address = running.address(bound)
        running.run(application(service, Access()), service, bound, lambda: sys.stderr.write(f"{address}\n"))


if __name__ == "__main__":
    main()
