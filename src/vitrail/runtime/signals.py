"""Ctrl-C, SIGTERM and their like, heard between two steps."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from vitrail.errors import VitrailError

ECHO = 1.0
ALWAYS = (signal.SIGINT, signal.SIGTERM)
HEARD = (*ALWAYS, *(getattr(signal, name) for name in ("SIGHUP", "SIGXCPU", "SIGUSR1") if hasattr(signal, name)))
"""Ctrl-C; a request to end; the terminal has gone; the CPU time that is allowed is used up; Slurm's, before the time is over."""
REQUEUED = getattr(signal, "SIGUSR1", None)
"""Under Slurm a run that is stopped by it asks to be put back into the queue."""
SAVED = "interrupted; everything is saved"
"""Message of a run that a signal stopped, by default."""


class InterruptedRunError(VitrailError):
    """A run that a signal stopped. Its exit code is 128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""

    def __init__(self, number: int, folder: Path, resume: str, *, what: str = SAVED):
        super().__init__(what, where=folder, hint=resume)
        self.exit_code = 128 + number  # type: ignore[misc]
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs: one process sends it to the others."""
        return partial(InterruptedRunError, what=self.what), (self.number, self.where, self.hint)


class Signals:
    """Remembers the first signal; the second one stops at once.

    A program that stops a whole group of processes, and one that passes signals on to them, may both send the same: a signal
    within `ECHO` seconds is still the first; and the kernel repeats SIGXCPU every second.
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
        elif number in ALWAYS and time.monotonic() - self.heard > ECHO:
            raise KeyboardInterrupt


_EARLY: list[int] = []
"""Signals that came before `remembered_signals`."""


def remember_early() -> None:
    """Remember, for `remembered_signals`, signals that would end a process without a word before its work has begun.

    SIGTERM and SIGHUP are handled by `vitrail.cli.app`.
    """
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGXCPU", "SIGUSR1"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda number, frame: _EARLY.append(number))


def not_ignored(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return the signals that the process does not ignore, as nohup makes it ignore SIGHUP; `ALWAYS` are among them."""
    return [number for number in numbers if number in ALWAYS or signal.getsignal(number) != signal.SIG_IGN]


@contextmanager
def remembered_signals(on_first: Callable[[], None] | None = None) -> Iterator[Signals]:
    """Remember the signals `HEARD` instead of stopping; only the main thread can. The first one calls ``on_first`` at once.

    Signals that the process ignores, as nohup makes it ignore SIGHUP, stay ignored.
    """
    signals = Signals(on_first)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    old = {number: signal.signal(number, signals) for number in not_ignored(HEARD)}
    try:
        while _EARLY:
            signals(_EARLY.pop(), None)
        yield signals
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def requeue() -> str | None:
    """Have Slurm put this job back into its queue, and return the outcome; None where there is no Slurm."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    if (array := os.environ.get("SLURM_ARRAY_JOB_ID")) is not None:
        job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
    try:
        subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60, check=True)
    except subprocess.CalledProcessError as error:
        return f"job {job} could not be requeued: {error.stderr.strip()}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"job {job} could not be requeued: {error}"
    return f"job {job} is requeued"
