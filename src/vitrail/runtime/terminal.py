"""Who is looking: a person at a terminal, or nobody; of several processes the first speaks."""

import contextlib
import os
import re
import sys
from typing import NoReturn

_OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def is_one_of_several() -> bool:
    """Whether torchrun started several processes. What is no number is refused where they meet."""
    count = os.environ.get("WORLD_SIZE", "1")
    return count.isdecimal() and int(count) > 1


def is_first() -> bool:
    """Whether this process is the only one, or the one of several, which torchrun numbers, that prints."""
    return not is_one_of_several() or os.environ.get("RANK", "0") == "0"


def interactive() -> bool:
    """Whether stderr is a terminal, where lines may move."""
    return is_first() and sys.stderr.isatty()


def one_line(name: object) -> str:
    """A name of a file, which may have line breaks and tabs, in a line of results."""
    return str(name).replace("\n", "\\n").replace("\t", "\\t")


def escaped(text: str) -> str:
    """A text with the characters that terminals obey, those that turn its direction, and halves of letters, as their numbers.

    Names of files and of classes may be anybody's, and would clear a screen or write other lines into it. Halves of letters
    stand for the bytes of a file's name that is not in UTF-8; no text can be written with them.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(text: str) -> None:
    """A line on stderr: anything that is not the result. Where nobody reads it any more, it is lost, and nothing ends over it."""
    if is_first():
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{escaped(text)}\n")
            sys.stderr.flush()


def exit_at_once(code: int) -> NoReturn:
    """End the process without Python's usual way, which threads inside torch would turn into an abort; what is said is said."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a pipe that nobody reads any more, or one that is closed
            stream.flush()
    os._exit(code)
