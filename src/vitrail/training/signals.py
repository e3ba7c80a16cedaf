"""Ctrl-C and SIGTERM, heard between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vitrail.errors import VitrailError


class InterruptedRunError(VitrailError):
    """A run that was asked to stop. Exit code 130 (Ctrl-C) or 143 (SIGTERM)."""

    def __init__(self, number: int, folder: Path, resume: str, *, what: str = "interrupted; everything is saved"):
        super().__init__(what, where=folder, hint=resume)
        self.exit_code = 128 + number  # type: ignore[misc]


class Signals:
    """Remembers the first signal; the second one stops at once."""

    received: int = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number


@contextmanager
def remembered_signals() -> Iterator[Signals]:
    """Hear SIGINT and SIGTERM without stopping; only the main thread can."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    old = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
