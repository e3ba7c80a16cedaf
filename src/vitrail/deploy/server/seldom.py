"""Lines in the log about what a stranger can cause thousands of times."""

import logging
import time


class Seldom:
    """One line for all that happened since the last one, and at most one in so many seconds.

    Args:
        log: gets a warning.
        text: of the line, with a ``%d`` for how often it was.
        seconds: between two lines.
    """

    def __init__(self, log: logging.Logger, text: str, seconds: float):
        self._log, self._text, self._seconds = log, text, seconds
        self._count, self._next = 0, 0.0

    def happened(self) -> None:
        """It has happened once more."""
        self._count += 1

    def tell(self) -> None:
        """Write the line, if there is something to tell and it is time; to be called now and then."""
        if self._count and time.monotonic() >= self._next:
            self._log.warning(self._text, self._count)
            self._count, self._next = 0, time.monotonic() + self._seconds
