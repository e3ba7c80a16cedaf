"""What every request passes before the application and every answer behind it."""

import asyncio
import contextlib
import hmac
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitrail.deploy.server.access_log import line
from vitrail.deploy.server.problems import GONE, ProblemError, shutting_down

LINGER = 3.0
"""Seconds that are spent on the rest of a body which nobody wants."""
LEFT = "left"
"""What the state of a request calls the event that its client has gone."""
LOCAL = {"localhost", "127.0.0.1", "::1"}
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Who may ask: whoever has the token, or without one any program of this machine."""

    token: str | None = None

    def require(self, scope: Scope, unguarded: Collection[str]) -> None:
        """Refuse a request that may not be.

        Without a token it must be meant for this machine by name, and not come from a page of another site: a browser sends
        what any page asks it to, also to a name that its owner has pointed here.

        Args:
            scope: the request.
            unguarded: paths that need no token.

        Raises:
            ProblemError: 401, 403 or 421.
        """
        headers = Headers(scope=scope)
        if self.token is None:
            self._require_local(scope["method"], headers)
        elif scope["path"] not in unguarded:
            self._require_token(headers, self.token)

    def _require_local(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if _name(host) not in LOCAL:
            raise ProblemError(421, "the Host is not this machine", hint="ask for localhost, or start the server with a token")
        origin = headers.get("origin")
        if method not in SAFE and origin is not None and not _is_of(origin, host):
            raise ProblemError(403, "a page of another site asks", hint="start the server with a token, and ask from a program")

    def _require_token(self, headers: Headers, token: str) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            hint = "send the header Authorization: Bearer TOKEN"
            raise ProblemError(401, "the token is missing or wrong", hint=hint, headers={"WWW-Authenticate": "Bearer"})


def _name(host: str) -> str:
    """The name in a Host, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_of(origin: str, host: str) -> bool:
    """Whether an Origin is a page of that Host."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


class Edge:
    """Lets in who may be, and answers them all alike: the same headers, counted, and never cut off.

    A request may be answered before its body is read. If the connection were closed on it then, the client would lose the
    answer: so the rest is read and thrown away for a while, and then it is closed.

    Args:
        app: the application.
        access: who may ask.
        paths: those that are counted by name.
        unguarded: those that need no token.
        answered: called with path, status and seconds of every request.
        leaving: whether connections are to be closed.
        on_answer: called with a line about every request; see `access_log.line`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        paths: frozenset[str],
        unguarded: frozenset[str],
        answered: Callable[[str, int, float], None],
        leaving: Callable[[], bool],
        on_answer: Callable[[str], None] | None = None,
    ):
        self._app, self._access, self._paths, self._unguarded = app, access, paths, unguarded
        self._answered, self._leaving, self._on_answer = answered, leaving, on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, left = Headers(scope=scope), scope["state"][LEFT]
        begin, exchange = time.monotonic(), _Exchange(receive, send, left, _has_body(headers), self._leaving)
        try:
            _require_one_length(headers)
            self._access.require(scope, self._unguarded)
            # where there is something to get, HEAD asks for all of it but the body, which uvicorn leaves out
            await self._app({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, exchange.receive, exchange.send)
        except ProblemError as problem:
            await problem.response(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:  # an end at once, which still answers the clients that wait
            if not exchange.ended:
                await shutting_down().response(scope, receive, send)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            seconds = (exchange.ended or time.monotonic()) - begin
            self._answered(path, exchange.status, seconds)
            if self._on_answer is not None:
                self._on_answer(line(scope, exchange.status, exchange.sent, seconds))


@dataclass
class _Exchange:
    """A request and its answer, as they go by."""

    receive_next: Receive
    send_next: Send
    left: asyncio.Event
    unread: bool
    leaving: Callable[[], bool]
    status: int = GONE
    ended: float = 0.0
    sent: int = 0

    async def receive(self) -> Message:
        message = await self.receive_next()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = GONE if self.left.is_set() else message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self.unread or self.leaving():
                headers["Connection"] = "close"
            self.ended = time.monotonic()
        else:
            self.sent += len(message.get("body", b""))
        if message["type"] == "http.response.body" and self.unread and not message.get("more_body", False):
            await self.send_next({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body"}
        await self.send_next(message)

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while self.unread:
                    await self.receive()


def _require_one_length(headers: Headers) -> None:
    """Refuse a request with two accounts of where it ends: a proxy may believe the other one, and take the rest for a request."""
    if "transfer-encoding" in headers and "content-length" in headers:
        raise ProblemError(400, "the request has both Content-Length and Transfer-Encoding", hint="send one of them")


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
