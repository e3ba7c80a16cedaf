"""Who is looking: a person at a terminal, or nobody; of several processes the first speaks."""

import os
import sys


def is_first() -> bool:
    """Whether this process is the one of several, which torchrun numbers, that prints."""
    return os.environ.get("RANK", "0") == "0"


def interactive() -> bool:
    """Whether stderr is a terminal, where lines may move."""
    return is_first() and sys.stderr.isatty()


def note(text: str) -> None:
    """A line on stderr: anything that is not the result."""
    if is_first():
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
