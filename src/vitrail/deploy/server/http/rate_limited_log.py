"""Lines in the log about what a stranger can cause thousands of times."""

import asyncio
import logging

GATHER = 1.0
"""Seconds after the first time in which it is only counted."""


class Seldom:
    """One line for all that happened since the last one, and at most one in so many seconds.

    Args:
        log: gets a warning.
        text: of the line, with a ``%d`` for how often it was, and with places for what else is told of the last time.
        seconds: between two lines.
    """

    def __init__(self, log: logging.Logger, text: str, seconds: float):
        self._log, self._text, self._seconds = log, text, seconds
        self._count, self._next = 0, 0.0
        self._last: tuple[object, ...] = ()

    def happened(self, *last: object) -> None:
        """It has happened once more; for the thread of the event loop."""
        self._count, self._last = self._count + 1, last
        if self._count == 1:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time() + GATHER, self._next), self._tell, loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        self._log.warning(self._text, self._count, *self._last)
        self._count, self._next = 0, loop.time() + self._seconds
