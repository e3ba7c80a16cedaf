"""Whether the thread that computes still does."""

from vitrail.deploy.server.queue import Worker

SLOW, HUNG = 2.0, 6.0
"""Patiences that one batch may take: until the server says that it is not ready, and until nothing can mend it any more."""
LEAST = 5.0
"""Seconds of the shortest patience."""
BATCHES = 5.0
"""Times that a patience is at least as long as the slowest batch at the start."""


class Watch:
    """Looks at the thread that computes, now and then.

    It adds up the time between its looks and reads no clock, which would go on while the whole process is stopped.
    """

    def __init__(self, worker: Worker):
        self._worker = worker
        self._patience, self._turn, self._at = LEAST, 0, 0.0

    def expect(self, deadline: float, slowest: float) -> None:
        """From what a request may take and a batch has taken, how long one is waited for."""
        self._patience = max(LEAST, deadline, BATCHES * slowest)

    def look(self, seconds: float) -> None:
        """Note what is computed; called every so many seconds."""
        turn = self._worker.turn
        self._at = self._at + seconds if self._worker.working and turn == self._turn else 0.0
        self._turn = turn

    @property
    def trouble(self) -> str | None:
        """Why nothing is computed, if so."""
        if self._worker.dead:
            return "the thread that computes has died"
        if self._at > SLOW * self._patience:
            return f"the model has been at one batch for {self._at:.0f} seconds"
        return None

    @property
    def lost(self) -> bool:
        """Whether only another process can go on."""
        return self._worker.dead or self._at > HUNG * self._patience
