"""Openers that do what none may, to see that trials of spoilt files tell of it; imported by the processes of trials."""

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import file_openers
import file_trials

GOOD = b"good"


def crash(folder: Path, chance: Random) -> None:
    """End the process, as a library that reads beyond its memory would, but at a good file."""
    if (folder / "x").read_bytes() != GOOD:
        os.kill(os.getpid(), signal.SIGSEGV)


def fill(folder: Path, chance: Random) -> None:
    """Take far more memory than a file of a few bytes may."""
    assert b"\1" * 400 * 2**20


def fail(folder: Path, chance: Random) -> None:
    """Raise what is none of our errors."""
    raise KeyError("nobody's")


OPENERS = {"crash": crash, "fill": fill, "fail": fail}


def work(kind: str, *words: Any, **options: Any) -> None:
    """`file_trials.work` with these kinds."""
    file_openers.KINDS.update({name: file_openers.Kind(name, 1, ask, ()) for name, ask in OPENERS.items()})
    file_trials.work(kind, *words, **options)
