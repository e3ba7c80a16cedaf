"""uvicorn's HTTP/1.1, with a time limit for the head of a request, and with errors as problem documents."""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitrail.deploy.server.http.problems import MEDIA_TYPE, ProblemError

HEAD_SECONDS = 10.0
"""Seconds within which the head of a request must arrive."""


class Protocol(H11Protocol):
    """A connection."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()

    def _expect_head(self) -> None:
        """Start the timer while waiting for a head, and stop it when the head is complete."""
        between = self.cycle is None or self.cycle.response_complete
        if between and self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        elif not between and self._late is not None:
            self._late.cancel()
            self._late = None

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with status 400, unless another response has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            content = json.dumps(ProblemError(400, msg).content).encode()
            headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(content))), ("connection", "close")]
            events: list[Any] = [h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()]
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
