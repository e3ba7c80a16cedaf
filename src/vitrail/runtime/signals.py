"""Ctrl-C and SIGTERM, heard between two steps."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vitrail.errors import VitrailError

ECHO = 1.0


class InterruptedRunError(VitrailError):
    """A run that was asked to stop. Exit code 130 (Ctrl-C) or 143 (SIGTERM)."""

    def __init__(self, number: int, folder: Path, resume: str, *, what: str = "interrupted; everything is saved"):
        super().__init__(what, where=folder, hint=resume)
        self.exit_code = 128 + number  # type: ignore[misc]


class Signals:
    """Remembers the first signal; the second one stops at once.

    Who stops a whole group of processes, and one that passes signals on to them, may both send the same: what comes within
    `ECHO` seconds is still the first.
    """

    received: int = 0
    heard: float = 0.0

    def __init__(self, on_first: Callable[[], None] | None = None):
        self.on_first = on_first

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.received:
            self.received, self.heard = number, time.monotonic()
            if self.on_first is not None:
                with contextlib.suppress(RuntimeError, OSError):  # where the signal came in the middle of a line
                    self.on_first()
        elif time.monotonic() - self.heard > ECHO:
            raise KeyboardInterrupt


@contextmanager
def remembered_signals(on_first: Callable[[], None] | None = None) -> Iterator[Signals]:
    """Hear SIGINT and SIGTERM without stopping; only the main thread can. ``on_first`` is called at once by the first."""
    signals = Signals(on_first)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    old = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
