"""Ctrl-C, SIGTERM and other signals, handled between two steps."""

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
"""Ctrl-C; a request to end; a closed terminal (SIGHUP); the limit of CPU time (SIGXCPU); Slurm's warning before the job's time
ends (SIGUSR1)."""
REQUEUED = getattr(signal, "SIGUSR1", None)
"""A run that this signal stops asks Slurm to put the job back into the queue."""
SAVED = "interrupted; everything is saved"
"""Default message of a run that a signal stopped."""


class InterruptedRunError(VitrailError):
    """A run that a signal stopped. Its exit code is 128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""

    def __init__(self, number: int, folder: Path, resume: str, *, what: str = SAVED):
        super().__init__(what, where=folder, hint=resume)
        self.exit_code = 128 + number  # type: ignore[misc]
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the constructor and its arguments, for pickle: one process sends the error to the others."""
        return partial(InterruptedRunError, what=self.what), (self.number, self.where, self.hint)


class Signals:
    """A handler that remembers the first signal; a second Ctrl-C or SIGTERM raises `KeyboardInterrupt`.

    A signal within `ECHO` seconds of the first is ignored, since a process may get it twice: from its process group and from a
    parent that passes signals on. Other repeated signals are ignored, too: the kernel repeats SIGXCPU every second.
    """

    received: int = 0
    heard: float = 0.0

    def __init__(self, on_first: Callable[[], None] | None = None):
        self.on_first = on_first

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.received:
            self.received, self.heard = number, time.monotonic()
            if self.on_first is not None:
                with contextlib.suppress(RuntimeError, OSError):  # the signal interrupted a write to the same stream
                    self.on_first()
        elif number in ALWAYS and time.monotonic() - self.heard > ECHO:
            raise KeyboardInterrupt


_EARLY: list[int] = []
"""Signals that came before `remembered_signals`."""


def remember_early() -> None:
    """Remember SIGXCPU and SIGUSR1 for `remembered_signals`, instead of ending without a message before the work begins.

    `vitrail.cli.app` handles SIGTERM and SIGHUP.
    """
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGXCPU", "SIGUSR1"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda number, frame: _EARLY.append(number))


def not_ignored(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return those of the signals that the process does not ignore (nohup ignores SIGHUP); `ALWAYS` count as not ignored."""
    return [number for number in numbers if number in ALWAYS or signal.getsignal(number) != signal.SIG_IGN]


@contextmanager
def remembered_signals(on_first: Callable[[], None] | None = None) -> Iterator[Signals]:
    """Remember signals of `HEARD` inside the block instead of stopping. The first signal calls ``on_first`` at once.

    This has an effect in the main thread only. Signals that the process ignores (nohup ignores SIGHUP) stay ignored.
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
    """Ask Slurm to put this job back into its queue, and return a message with the outcome; None without Slurm."""
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
