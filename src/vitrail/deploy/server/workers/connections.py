"""The connections of a server: how long each may keep it waiting, how many there may be, and which one goes for a new one."""

import asyncio
import json
import os
import socket
import sys
import time
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitrail.deploy.server.http.clients import LEFT, network
from vitrail.deploy.server.http.limits import MEBIBYTE
from vitrail.deploy.server.http.problems import MEDIA_TYPE, ProblemError, crowded
from vitrail.deploy.server.metrics import Metrics
from vitrail.deploy.server.workers.shared_state import Place

HEAD_SECONDS = 10.0
"""The head of a request takes at most so long to come."""
TAKE_SECONDS = 20.0
"""A client takes its answer in so long, beyond what the system keeps for it, or is cut off."""
SEND_BYTES = MEBIBYTE // 8
"""Bytes of answers that the system keeps for a client, and about as many for itself; left alone it may keep megabytes."""
UNTAKEN = 64 * MEBIBYTE
"""Bytes of answers that wait to be taken, of all clients together; above it the largest of them is cut off."""
MOST = 1000
"""Connections at a time, where the system has descriptors for them."""
SPARE_FILES = 128
"""Descriptors that are left for files, and for connections that have come and are not let in yet."""
BURST = 16
"""Connections that are accepted before others are let go: asyncio accepts all of a burst before it looks at one of them."""
LEAVE = 0.005
"""Seconds for which a worker leaves a connection to others, which have fewer; then it takes it all the same."""
BACKLOG = 2048
"""Connections that may wait in the system."""


def most_connections() -> int:
    """As many as there are descriptors for."""
    if sys.platform == "win32":
        return MOST
    import resource  # Windows has none

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = MOST + SPARE_FILES if files == resource.RLIM_INFINITY else max(2, files - len(os.listdir("/dev/fd")))
    return min(MOST, free - min(SPARE_FILES, free // 2))


class Door(socket.socket):
    """A listening socket from which several workers accept connections, in ``place`` one of them."""

    def __init__(self, bound: socket.socket, place: Place):
        super().__init__(fileno=os.dup(bound.fileno()))
        self._place, self._since = place, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, unless it is better left to another worker: then there is none, as far as is told."""
        if self._place.replaced or (self._place.yields and self._leaves()):
            raise BlockingIOError
        found = super().accept()
        self._place.own.connections += 1  # the event loop will tell of it only when it has accepted all that wait
        return found

    def listen(self, backlog: int = 0) -> None:
        """Listen; what asyncio asks for is how many to accept at once, and would cut off who waits for another worker."""
        super().listen(BACKLOG)

    def _leaves(self) -> bool:
        now = time.monotonic()
        if now - self._since > 2 * LEAVE:
            self._since = now
        return now - self._since < LEAVE


class Crowd:
    """All connections.

    There is no fixed limit for an address: behind a proxy all clients have the same one. Only when no place is left, a new
    connection takes the place of another: of the address that has most, the one that has sent nothing for longest.
    So a client with a thousand connections is in its own way, and where all have one address, whoever stalls goes first.
    """

    def __init__(self, metrics: Metrics, place: Place):
        self._place = place
        self._all: set[Protocol] = set()
        self._most = most_connections()
        self._stalled = metrics.counter("connections_stalled", "Connections cut off because an answer was not taken.")
        self._crowded = metrics.counter("connections_crowded", "Connections cut off, or refused, because there were too many.")
        metrics.gauge("connections", "Connections.", lambda: len(self._all))
        metrics.gauge("connections_limit", "Connections that there may be.", lambda: self._most)

    def let_in(self, one: "Protocol") -> bool:
        """Whether there is a place for a connection, which is then its own until it leaves."""
        if len(self._all) >= self._most:
            self._crowded()
            if not self._make_room(one):
                return False
        self._all.add(one)
        self._place.own.connections = len(self._all)
        return True

    def leave(self, one: "Protocol") -> None:
        """It has gone."""
        self._all.discard(one)
        self._place.own.connections = len(self._all)

    def sweep(self, seconds: float) -> None:
        """Cut off who does not take what it was sent; called every so many seconds."""
        for one in list(self._all):
            one.behind = one.behind + seconds if one.untaken else 0.0
            if one.behind > TAKE_SECONDS:
                self._cut(one)
                self._stalled()
        waiting = sorted(self._all, key=lambda one: one.untaken)
        while sum(one.untaken for one in waiting) > UNTAKEN:
            self._cut(waiting.pop())
            self._stalled()

    def _make_room(self, newcomer: "Protocol") -> bool:
        counts = Counter(one.network for one in self._all)
        idle = [one for one in self._all if one.may_go and counts[one.network] >= counts[newcomer.network]]
        if idle:
            self._cut(max(idle, key=lambda one: (counts[one.network], -one.moved)))
        return bool(idle)

    def _cut(self, one: "Protocol") -> None:
        self.leave(one)
        one.transport.abort()  # a plain close would wait until all is taken


class Protocol(H11Protocol):
    """Uvicorn's HTTP/1.1 with a place in the crowd, a limit on how long a head may take, and problems instead of plain text."""

    def __init__(self, crowd: Crowd, *, app_state: dict[str, Any], **of_uvicorn: Any):
        self._crowd, self._left = crowd, asyncio.Event()
        super().__init__(app_state={**app_state, LEFT: self._left}, **of_uvicorn)
        self._late: asyncio.TimerHandle | None = None
        self.network, self.moved, self.behind = "", 0.0, 0.0
        """Who it is, when it has last sent something, and for how many seconds it has had something to take."""

    @property
    def untaken(self) -> int:
        """Bytes that it has not taken yet and that the system does not keep either."""
        return self.transport.get_write_buffer_size()

    @property
    def may_go(self) -> bool:
        """Whether the next move is the client's (to send, or to take what it was sent), or it asks again and again unanswered."""
        between = self.cycle is None or self.cycle.response_complete
        return between or self.cycle.more_body or self.flow.read_paused or self.untaken > 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self.network, self.moved = network(self.client[0] if self.client else ""), self.loop.time()
        if self._crowd.let_in(self):
            self._expect_head()
        else:
            self._refuse(crowded())

    def data_received(self, data: bytes) -> None:
        """It has sent something."""
        self.moved = self.loop.time()
        super().data_received(data)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._left.set()
        super().connection_lost(exc)
        self._crowd.leave(self)
        if self._late is not None:
            self._late.cancel()

    def _expect_head(self) -> None:
        """Begin to count when a head is to come, and stop when it is there."""
        between = self.cycle is None or self.cycle.response_complete
        if between and self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        elif not between and self._late is not None:
            self._late.cancel()
            self._late = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP."""
        self._refuse(ProblemError(400, msg))

    def _refuse(self, problem: ProblemError) -> None:
        """Answer with a problem, if no other answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            content = json.dumps(problem.content).encode()
            more = (problem.headers or {}).items()
            headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(content))), ("connection", "close"), *more]
            response = h11.Response(status_code=problem.content["status"], headers=headers)
            events: list[Any] = [response, h11.Data(data=content), h11.EndOfMessage()]
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
