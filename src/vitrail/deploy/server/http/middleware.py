"""ASGI middleware for every request and every response: access, headers, logging."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitrail.deploy.server.http.access import Access, foreign_page
from vitrail.deploy.server.http.access_log import line
from vitrail.deploy.server.http.origins import is_preflight, preflight_headers, sharing_headers
from vitrail.deploy.server.http.problems import GONE, ProblemError, shutting_down

LINGER = 3.0
"""Seconds spent on reading the rest of a body after the response."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Middleware:
    """Middleware that checks access, sets headers, counts requests, and makes sure that responses arrive.

    A request may be answered before its body is read. If the connection were closed at this moment, the client could lose the
    response. Therefore the rest of the body is read and discarded for a while before the connection is closed.

    Args:
        app: the application.
        access: rules for access.
        paths: paths that are counted by name; all others count as ``other``.
        unguarded: paths that need no token.
        answered: called with path, status and seconds of every request.
        leaving: returns whether connections are closed after a response.
        on_answer: called with a log line for every request; see `access_log.line`.
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
        headers, begin = Headers(scope=scope), time.monotonic()
        shared = sharing_headers(headers, self._access.origins)
        exchange = _Exchange(receive, send, _has_body(headers), self._leaving, {**HEADERS, **shared})
        try:
            _require_one_length(headers)
            if is_preflight(scope["method"], headers):
                await self._preflight(headers)(scope, exchange.receive, exchange.send)
                return
            self._access.require(scope, self._unguarded)
            # HEAD is handled as GET: uvicorn sends no body for it
            await self._app({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            pass  # counted with the status GONE
        except ProblemError as problem:
            await problem.response(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:  # the server ends at once, but clients that wait still get a response
            if not exchange.ended:
                await shutting_down().response(scope, receive, send)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            seconds = (exchange.ended or time.monotonic()) - begin
            self._answered(path, exchange.status, seconds)
            if self._on_answer is not None:
                self._on_answer(line(scope, exchange.status, exchange.sent, seconds))

    def _preflight(self, headers: Headers) -> Response:
        if headers["origin"] not in self._access.origins:
            raise foreign_page(headers["origin"])
        return Response(status_code=204, headers=preflight_headers(headers))


@dataclass
class _Exchange:
    """A request and its response, whose messages pass through ``receive`` and ``send``."""

    receive_next: Receive
    send_next: Send
    unread: bool
    leaving: Callable[[], bool]
    headers: Mapping[str, str]
    """Headers to add to the response, unless it has headers of the same names."""
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
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self.headers.items():
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
    """Refuse a request that declares its length in two ways, as a proxy may see two requests in it (request smuggling)."""
    if "transfer-encoding" in headers and "content-length" in headers:
        raise ProblemError(400, "the request has both Content-Length and Transfer-Encoding", hint="send one of them")


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
