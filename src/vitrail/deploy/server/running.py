"""Running the server with uvicorn: one process with a graceful shutdown, or several under uvicorn's process manager."""

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
"""Seconds after the stop signal in which requests are still accepted: they were sent earlier and wait in the system."""
SPARE = 5.0
"""Seconds, in addition to the time limits of a request, within which the server must end."""
LAST = 1.0
"""Seconds to finish the last batch, if no client waits for its results."""
CONNECTIONS = 1000
"""Most connections and requests at a time in one process; uvicorn answers further ones with 503."""
START = 60
"""Seconds without a sign of life after which uvicorn replaces a worker. On a busy machine, importing torch may take that long."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address but does not listen yet; port 0 means any free port.

    Raises:
        VitrailError: the address is in use, or does not belong to this machine.
    """
    try:
        kind, _, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(kind, socket.SOCK_STREAM, protocol)  # asyncio sets TCP_NODELAY only if the protocol says TCP
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "give another --port, or 0 for any free one; --host must be an address of this machine"
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
    """Return the seconds within which all accepted requests are answered."""
    return BODY_SECONDS + limits.deadline + SPARE


def configured(app: Any, *, graceful: float, **others: Any) -> uvicorn.Config:
    """Return uvicorn's settings: HTTP/1.1 only, without logs, and ``graceful`` seconds for open connections at shutdown."""
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # the response already reports a damaged form
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
    """Serve until a signal comes, then answer all accepted requests; return the signal's number.

    If the model is still computing a batch for which no client waits, the process exits here.

    Raises:
        VitrailError: a request could not be answered in time.
    """
    server = Server(app, service, on_start)
    service.start()
    with frozen_garbage():
        server.run(sockets=[bound])
    service.close()
    if service.active:
        what = f"{service.active} requests were not answered in time"
        raise VitrailError(what, where="shutting down", hint="the model hangs; start the server again")
    if not service.ended(LAST):
        logging.shutdown()
        exit_at_once(128 + signal.SIGINT if server.signal == signal.SIGINT else 0)
    return server.signal


@contextlib.contextmanager
def frozen_garbage() -> Any:
    """Exclude the libraries' objects from garbage collection, as each pass would stop the server for a fifth of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Server(uvicorn.Server):
    """A uvicorn server that, at the first signal, refuses new requests, finishes the others, and only then stops listening."""

    def __init__(self, app: Any, service: Service, on_start: Callable[[], None]):
        super().__init__(configured(app, graceful=SPARE))
        self._service, self._on_start = service, on_start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self.signal = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and call ``on_start``."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, and stop at once at the second."""
        if self.signal or self._loop is None:
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self.drain)
        self.signal = self.signal or sig

    def drain(self) -> None:
        """Refuse new requests, and stop when all others are answered."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await asyncio.sleep(ON_THE_WAY)
        self._service.draining = True
        await self._service.idle(patience(self._service.limits))
        self.should_exit = True


class Workers(Multiprocess):
    """Uvicorn's process manager, which calls ``on_start`` once all workers are ready."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], on_start: Callable[[], None]):
        super().__init__(config, sockets)
        self._on_start = on_start
        self.signal: int = signal.SIGTERM

    def init_processes(self) -> None:
        """Start the workers, and wait until each of them is ready or has died."""
        super().init_processes()
        for process in self.processes:
            while process.process.is_alive() and not process.is_ready(timeout=0.5):
                self.handle_signals()
                if self.should_exit.is_set():
                    return
        if all(process.process.is_alive() for process in self.processes):
            self._on_start()

    def handle_int(self) -> None:
        """Remember Ctrl-C, which has its own exit code."""
        self.signal = signal.SIGINT
        super().handle_int()


def run_workers(build: Callable[[], Any], count: int, limits: Limits, bound: socket.socket, on_start: Callable[[], None]) -> int:
    """Serve with several processes until a signal comes, then let each answer its requests; return the signal's number.

    Args:
        build: returns the application, in each worker; it must be picklable.
        count: number of workers.
        limits: limits of a request.
        bound: the socket that the workers share.
        on_start: called once all workers are ready.

    Raises:
        VitrailError: a worker could not start.
    """
    config = configured(build, graceful=patience(limits), factory=True, workers=count, timeout_worker_healthcheck=START)
    workers = Workers(config, [bound], on_start)
    workers.run()
    if any(process.exitcode == STARTUP_FAILURE for process in workers.processes):
        raise VitrailError("a worker could not start", where="--workers", hint="see its error above")
    return workers.signal
