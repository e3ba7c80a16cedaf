"""The server as a process: a socket, uvicorn, and an end that loses nobody."""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import uvicorn

from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.middleware import Edge
from vitrail.deploy.server.http.rate_limited_log import Seldom
from vitrail.deploy.server.http.reading import BODY_SECONDS
from vitrail.deploy.server.service import Service
from vitrail.deploy.server.workers.connections import BACKLOG, BURST, SEND_BYTES, Crowd, Protocol
from vitrail.deploy.server.workers.shared_state import AT_ONCE, DRAIN, SUPERVISOR
from vitrail.errors import VitrailError
from vitrail.runtime.terminal import exit_at_once

ON_THE_WAY = 0.1
"""Seconds after the signal to stop in which requests are still let in: they were sent before it, and wait in the system."""
SPARE = 5.0
"""Seconds, beyond what requests may take, in which the server must have ended."""
ALONE = 5.0
"""Seconds after which a worker ends that nobody looks after, since supervisor and its second were killed at once."""
HEAR = 0.05
"""Seconds between two looks at what workers are told."""
LAST = 1.0
"""Seconds that the last batch, whose answers nobody waits for, has to be done."""
LOOK = 1.0
"""Seconds between two looks at who does not take his answers, and at the thread that computes."""
SELDOM = 60.0
"""Seconds between two lines about what cannot be accepted."""

log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """A socket with that address; a free port for 0. It does not listen yet.

    Raises:
        VitrailError: the address is taken, or none of this machine.
    """
    try:
        kind, _, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(kind, socket.SOCK_STREAM, protocol)  # asyncio sends at once only on what is TCP by name
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # which its connections have from it
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
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def address(bound: socket.socket) -> str:
    """Its URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Edge, service: Service, bound: socket.socket, on_start: Callable[[], None]) -> int:
    """Serve until a signal comes, then answer what was let in. Gives the signal's number, or ends the process where a batch
    that nobody waits for is still being computed; with exit code 1 where one never ends.

    Raises:
        VitrailError: something could not be answered in time, or the thread that computes has died.
    """
    server = Server(app, service, on_start)
    service.start()
    gc.collect()
    gc.freeze()  # looking through all that the libraries have made would stop everything for a fifth of a second, now and then
    try:
        server.run(sockets=[bound])
    finally:
        gc.unfreeze()
        service.close()
    if server.lost:
        error = VitrailError(server.lost, where="the thread that computes", hint="start the server again; systemd can do it")
        if service.ended(0):
            raise error
        log.error("%s", error)
        _leave(1)
    if service.active:
        raise VitrailError(f"{service.active} requests were given up", where="shutting down", hint="the model hangs")
    if not service.ended(LAST):
        _leave(128 + signal.SIGINT if server.signal == signal.SIGINT else 0)
    return server.signal


def _longest(limits: Limits) -> float:
    """Seconds in which all requests are answered that were let in."""
    return BODY_SECONDS + limits.deadline + SPARE


def patience(limits: Limits) -> float:
    """Seconds in which a process has ended that was told to."""
    return ON_THE_WAY + _longest(limits) + SPARE + LAST + 1.0


def _leave(code: int) -> NoReturn:
    """Exit at once, as `vitrail serve` would."""
    logging.shutdown()
    exit_at_once(code)


class Server(uvicorn.Server):
    """Uvicorn, which at the first signal refuses what is new, finishes what it has, and only then stops to listen."""

    def __init__(self, app: Edge, service: Service, on_start: Callable[[], None]):
        self._crowd = Crowd(service.metrics, service.place)
        config = uvicorn.Config(
            app,
            http=partial(Protocol, self._crowd),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=1 if service.place.several else BURST,  # so that the others have their share
            timeout_graceful_shutdown=int(SPARE),
        )
        super().__init__(config)
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # who sends a damaged form is told in the answer
        self._service, self._on_start = service, on_start
        self._patience = _longest(service.limits)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._looking: list[asyncio.Task[None]] = []
        self._alone = 0.0
        self._unaccepted = Seldom(log, "%d times a connection could not be accepted: the system is short of descriptors", SELDOM)
        self.signal = 0
        self.lost: str | None = None
        """Why it has ended by itself, if it has."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._unforeseen)
        self._looking = [asyncio.ensure_future(self._look())]
        if self._service.place.several:
            self._looking.append(asyncio.ensure_future(self._obey()))
        self._on_start()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self._crowd.sweep(LOOK)
            watch = self._service.watch
            watch.look(LOOK)
            self._say(bool(watch.trouble) or self._draining is not None)
            if watch.lost:
                self.lost = watch.trouble
                self.should_exit = self.force_exit = True

    def _say(self, troubled: bool) -> None:
        """Have the other processes know how it is; and end where nobody looks after this one any more."""
        place = self._service.place
        place.own.beats += 1
        place.own.troubled = troubled
        if not place.several:
            return
        place.say(self._service.metrics.text())
        self._alone = 0.0 if place.board.holds(SUPERVISOR) else self._alone + LOOK
        if self._alone > ALONE:
            log.error("nobody looks after process %d any more: it ends", os.getpid())
            self.drain()

    async def _obey(self) -> None:
        """Do what the supervisor says."""
        while True:
            await asyncio.sleep(HEAR)
            self.obey(self._service.place.board.head.order)

    def obey(self, order: int) -> None:
        """Follow an order of the board, or one that no process gives any more."""
        if order == AT_ONCE:
            self.should_exit = self.force_exit = True
        elif order == DRAIN:
            self.drain()

    def _unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Asyncio tells of every attempt to accept a connection without a descriptor, of which there are many."""
        if isinstance(context.get("exception"), OSError) and "socket.accept()" in context["message"]:
            self._unaccepted.happened()
        else:
            loop.default_exception_handler(context)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal is for an orderly end, the next one for an end at once."""
        if self.signal or self._loop is None:
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self.drain)
        self.signal = self.signal or sig

    def drain(self) -> None:
        """Let nothing in any more, and end when all is answered."""
        if self._draining is None:
            self._service.place.own.troubled = 1
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await asyncio.sleep(ON_THE_WAY)
        self._service.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while self._service.active:
                    await asyncio.sleep(0.02)
        self.should_exit = True
