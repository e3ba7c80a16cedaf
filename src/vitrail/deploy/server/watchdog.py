"""A watchdog for the thread that runs the model."""

from vitrail.deploy.server.queue import Worker

SLOW, HUNG = 2.0, 6.0
"""Multiples of the patience after which a batch makes the server unready, and after which only a new process can help."""
LEAST = 5.0
"""The shortest patience, in seconds."""
BATCHES = 5.0
"""Minimum of the patience, in multiples of the slowest batch at the start."""


class Watch:
    """A watchdog that checks the thread at intervals.

    It adds up the intervals instead of reading a clock, which would go on while the whole process is stopped.
    """

    def __init__(self, worker: Worker):
        self._worker = worker
        self._patience, self._turn, self._at = LEAST, 0, 0.0

    def expect(self, deadline: float, slowest: float) -> None:
        """Set the patience from the deadline of a request and the slowest batch so far, in seconds."""
        self._patience = max(LEAST, deadline, BATCHES * slowest)

    def look(self, seconds: float) -> None:
        """Check the batch in progress; called every ``seconds``."""
        turn = self._worker.turn
        self._at = self._at + seconds if self._worker.working and turn == self._turn else 0.0
        self._turn = turn

    @property
    def trouble(self) -> str | None:
        """The reason why the model computes nothing; None if it works."""
        if self._worker.dead:
            return "the thread that runs the model has died"
        if self._at > SLOW * self._patience:
            return f"the model has been computing one batch for {self._at:.0f} seconds"
        return None

    @property
    def lost(self) -> bool:
        """True if only a new process can help."""
        return self._worker.dead or self._at > HUNG * self._patience
