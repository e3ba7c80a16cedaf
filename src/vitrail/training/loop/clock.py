"""The time that a run may take."""

import math
import time


class Clock:
    """Measures a run's time, the time before interruptions included.

    Args:
        limit: seconds; None for no end.
        spent: seconds that were used before.
        begun: start of the command, by ``time.monotonic``; now by default.
    """

    def __init__(self, limit: float | None, spent: float = 0.0, *, begun: float | None = None):
        self.limit, self.before = limit, spent
        self.begun = time.monotonic() if begun is None else begun

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.before + time.monotonic() - self.begun

    @property
    def left(self) -> float:
        """Seconds until the limit, 0 behind it."""
        return math.inf if self.limit is None else max(0.0, self.limit - self.spent)

    def share(self, reserve: float) -> float:
        """Return the used fraction of the time without the ``reserve`` of seconds for the end of the run."""
        return 0.0 if self.limit is None else min(1.0, self.spent / max(self.limit - reserve, 1e-3))


class OutOfTimeError(Exception):
    """A part of a run has used its part of the time; the text says what this means for the run."""


def shown_seconds(seconds: float) -> str:
    """Return ``4:05`` minutes, or ``1h23m``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def round_limit(seconds: float) -> str:
    """Return a time limit of at least so many seconds in round numbers: ``45s``, ``20m``, ``3h``."""
    for most, step, unit, letter in ((60, 15, 1, "s"), (600, 1, 60, "m"), (3600, 5, 60, "m")):
        if seconds <= most:
            return f"{step * max(1, math.ceil(seconds / unit / step))}{letter}"
    return f"{math.ceil(seconds / 3600)}h"
