"""The server as processes of uvicorn: one that loses nobody at its end, or several under uvicorn's own process manager."""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.protocol import Protocol
from vitrail.deploy.server.http.reading import BODY_SECONDS
from vitrail.deploy.server.service import Service
from vitrail.errors import VitrailError
from vitrail.runtime.terminal import exit_at_once

ON_THE_WAY = 0.1
"""Seconds after the signal to stop in which requests are still let in: they were sent before it, and wait in the system."""
SPARE = 5.0
"""Seconds, beyond the limits of a request, in which the server must have ended."""
LAST = 1.0
"""Seconds to finish the last batch, whose answers nobody waits for."""
CONNECTIONS = 1000
"""Connections, and requests, at a time in one process; uvicorn answers further ones with 503."""
START = 60
"""Seconds without a sign of life after which uvicorn replaces a worker; importing torch may take that long on a busy machine."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket with that address, which does not listen yet; port 0 stands for any free one.

    Raises:
        VitrailError: the address is taken, or none of this machine.
    """
    try:
        kind, _, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(kind, socket.SOCK_STREAM, protocol)  # asyncio sends at once only on what is TCP by name
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "give another --port, or 0 for any that is free; --host is an address of this machine"
        raise VitrailError(f"cannot listen at {host}, port {port}: {reason}", where="--port", hint=hint) from None
    return bound


def is_loopback(bound: socket.socket) -> bool:
    """Return whether only this machine can reach a socket."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def address(bound: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def patience(limits: Limits) -> float:
    """Return the seconds in which all requests that were let in are answered."""
    return BODY_SECONDS + limits.deadline + SPARE


def configured(app: Any, *, graceful: float, **others: Any) -> uvicorn.Config:
    """Return uvicorn's settings: HTTP/1.1 alone, quiet, and with ``graceful`` seconds for open connections at the end."""
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # the answer tells who sends a damaged form
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=int(graceful),
        **others,
    )


def run(app: Any, service: Service, bound: socket.socket, on_start: Callable[[], None]) -> int:
    """Serve until a signal comes, then answer all requests that were let in; return the signal's number.

    The process ends here where a batch is still being computed that nobody waits for.

    Raises:
        VitrailError: a request could not be answered in time.
    """
    server = Server(app, service, on_start)
    service.start()
    with frozen_garbage():
        server.run(sockets=[bound])
    service.close()
    if service.active:
        raise VitrailError(f"{service.active} requests were given up", where="shutting down", hint="the model hangs")
    if not service.ended(LAST):
        logging.shutdown()
        exit_at_once(128 + signal.SIGINT if server.signal == signal.SIGINT else 0)
    return server.signal


@contextlib.contextmanager
def frozen_garbage() -> Any:
    """Keep the garbage collector from the objects of the libraries: each pass would stop everything for a fifth of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Server(uvicorn.Server):
    """Uvicorn that, at the first signal, refuses new requests, finishes the others, and only then stops to listen."""

    def __init__(self, app: Any, service: Service, on_start: Callable[[], None]):
        super().__init__(configured(app, graceful=SPARE))
        self._service, self._on_start = service, on_start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self.signal = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, and stop at once at the next one."""
        if self.signal or self._loop is None:
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self.drain)
        self.signal = self.signal or sig

    def drain(self) -> None:
        """Let nothing in any more, and end when all requests are answered."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await asyncio.sleep(ON_THE_WAY)
        self._service.draining = True
        await self._service.idle(patience(self._service.limits))
        self.should_exit = True


class Workers(Multiprocess):
    """Uvicorn's process manager, which calls ``on_start`` once all workers answer."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], on_start: Callable[[], None]):
        super().__init__(config, sockets)
        self._on_start = on_start
        self.signal: int = signal.SIGTERM

    def init_processes(self) -> None:
        """Start the workers, and wait until each of them answers or has died."""
        super().init_processes()
        for process in self.processes:
            while process.process.is_alive() and not process.is_ready(timeout=0.5):
                self.handle_signals()
                if self.should_exit.is_set():
                    return
        if all(process.process.is_alive() for process in self.processes):
            self._on_start()

    def handle_int(self) -> None:
        """Note Ctrl-C, which has an exit code of its own."""
        self.signal = signal.SIGINT
        super().handle_int()


def run_workers(build: Callable[[], Any], count: int, limits: Limits, bound: socket.socket, on_start: Callable[[], None]) -> int:
    """Serve by several processes until a signal comes, then let each answer its requests; return the signal's number.

    Args:
        build: makes the application, in each worker; it must be possible to pickle it.
        count: workers.
        limits: of a request.
        bound: the socket that they share.
        on_start: called once all answer.

    Raises:
        VitrailError: a worker could not start.
    """
    config = configured(build, graceful=patience(limits), factory=True, workers=count, timeout_worker_healthcheck=START)
    workers = Workers(config, [bound], on_start)
    workers.run()
    if any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
        raise VitrailError("a worker could not start", where="--workers", hint="its error stands above")
    return workers.signal
