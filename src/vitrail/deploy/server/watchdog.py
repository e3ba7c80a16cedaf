"""A watch on the thread that computes."""

from vitrail.deploy.server.queue import Worker

SLOW, HUNG = 2.0, 6.0
"""Patiences that one batch may take until the server is not ready, and until only a new process can go on."""
LEAST = 5.0
"""Seconds of the shortest patience."""
BATCHES = 5.0
"""A patience is at least so many times the slowest batch at the start."""


class Watch:
    """Looks at the thread now and then.

    It adds up the time between its looks and reads no clock, which would go on while the whole process is stopped.
    """

    def __init__(self, worker: Worker):
        self._worker = worker
        self._patience, self._turn, self._at = LEAST, 0, 0.0

    def expect(self, deadline: float, slowest: float) -> None:
        """Set the patience, by the deadline of a request and the slowest batch so far."""
        self._patience = max(LEAST, deadline, BATCHES * slowest)

    def look(self, seconds: float) -> None:
        """Note the batch in progress; called every so many seconds."""
        turn = self._worker.turn
        self._at = self._at + seconds if self._worker.working and turn == self._turn else 0.0
        self._turn = turn

    @property
    def trouble(self) -> str | None:
        """The reason why nothing is computed; None where all is well."""
        if self._worker.dead:
            return "the thread that computes has died"
        if self._at > SLOW * self._patience:
            return f"the model has been at one batch for {self._at:.0f} seconds"
        return None

    @property
    def lost(self) -> bool:
        """True where only another process can go on."""
        return self._worker.dead or self._at > HUNG * self._patience
