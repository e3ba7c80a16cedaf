"""The time limit of a run."""

import math
import time


class Clock:
    """A timer of a run's duration, including the time before interruptions.

    Args:
        limit: seconds; None for no limit.
        spent: seconds that the run took before it was interrupted.
        begun: start of this command, by ``time.monotonic``; now by default.
    """

    def __init__(self, limit: float | None, spent: float = 0.0, *, begun: float | None = None):
        self.limit, self.before = limit, spent
        self.begun = time.monotonic() if begun is None else begun

    @property
    def spent(self) -> float:
        """Seconds that the run has taken so far."""
        return self.before + time.monotonic() - self.begun

    @property
    def left(self) -> float:
        """Seconds until the limit; 0 after it."""
        return math.inf if self.limit is None else max(0.0, self.limit - self.spent)

    def share(self, reserve: float) -> float:
        """Return the used fraction of the time limit, after ``reserve`` seconds are set aside for the end of the run."""
        return 0.0 if self.limit is None else min(1.0, self.spent / max(self.limit - reserve, 1e-3))


class OutOfTimeError(Exception):
    """An interruption of a part of a run that used up its time; the message says what follows from it."""


def shown_seconds(seconds: float) -> str:
    """Return a duration as minutes and seconds, ``4:05``, or as ``1h23m``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def round_limit(seconds: float) -> str:
    """Return a round time limit of at least ``seconds``: ``45s``, ``20m``, ``3h``."""
    for most, step, unit, letter in ((60, 15, 1, "s"), (600, 1, 60, "m"), (3600, 5, 60, "m")):
        if seconds <= most:
            return f"{step * max(1, math.ceil(seconds / unit / step))}{letter}"
    return f"{math.ceil(seconds / 3600)}h"
