"""The terminal, if there is one; of several processes only the first writes to it."""

import contextlib
import os
import re
import sys
from typing import NoReturn

_OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def is_one_of_several() -> bool:
    """Return whether torchrun started several processes; a value that is no number is refused where they meet."""
    count = os.environ.get("WORLD_SIZE", "1")
    return count.isdecimal() and int(count) > 1


def is_first() -> bool:
    """Return whether this process prints: it is the only one, or the first of several."""
    return not is_one_of_several() or os.environ.get("RANK", "0") == "0"


def interactive() -> bool:
    """Return whether stderr is a terminal, where lines may move."""
    return is_first() and sys.stderr.isatty()


def one_line(name: object) -> str:
    """Return the name of a file, which may have line breaks and tabs, as one line of results."""
    return str(name).replace("\n", "\\n").replace("\t", "\\t")


def escaped(text: str) -> str:
    """Return a text with characters that terminals obey or that turn its direction, and lone surrogates, as escapes.

    Names of files and classes may be anybody's, and would clear a screen or write other lines into it. Lone surrogates stand for
    the bytes of a file's name that is not in UTF-8; no text can be written with them.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(text: str) -> None:
    """Write a line on stderr, for anything that is not the result; it is lost where nobody reads it."""
    if is_first():
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{escaped(text)}\n")
            sys.stderr.flush()


def exit_at_once(code: int) -> NoReturn:
    """End the process without Python's usual way, which threads inside torch would turn into an abort."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a pipe that nobody reads any more, or one that is closed
            stream.flush()
    os._exit(code)
