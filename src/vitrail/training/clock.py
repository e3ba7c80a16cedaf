"""The time that a run may take."""

import time


class Clock:
    """How much of a run's time has gone, the time before interruptions included.

    Args:
        limit: seconds; None for no end.
        spent: seconds that have gone before.
    """

    def __init__(self, limit: float | None, spent: float = 0.0):
        self.limit, self.before, self.begun = limit, spent, time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.before + time.monotonic() - self.begun

    def share(self, reserve: float) -> float:
        """What share of the time has gone, apart from the ``reserve`` of seconds that the end of the run will need: 0 to 1."""
        if self.limit is None:
            return 0.0
        return min(1.0, self.spent / max(self.limit - reserve, 1e-3))
