"""Lines on the terminal; of several processes only the first writes them."""

import contextlib
import os
import re
import sys
import warnings
from typing import NoReturn

_OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def is_one_of_several() -> bool:
    """Return whether torchrun started several processes; `open_processes` checks the variable's value."""
    count = os.environ.get("WORLD_SIZE", "1")
    return count.isdecimal() and int(count) > 1


def restarts() -> int:
    """Return how often torchrun has started this command again after one of its processes ended (``--max-restarts``)."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(count) if count.isdecimal() else 0


def hide_torch_warnings() -> None:
    """Hide two harmless warnings of DDP under torchrun.

    One is about an option that `with_averaged_gradients` needs; torch reads the variable that hides it once, when it is imported.
    The other is about 1×1 convolutions in channels_last: their gradients have other strides in dimensions of size 1.
    """
    if is_one_of_several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")


def is_first() -> bool:
    """Return whether this process prints: it is the only one, or the first of several."""
    return not is_one_of_several() or os.environ.get("RANK", "0") == "0"


def interactive() -> bool:
    """Return whether stderr is a terminal, so that a progress bar may redraw lines."""
    return is_first() and sys.stderr.isatty()


def one_line(name: object) -> str:
    """Return a file name with its line breaks and tabs escaped, so that it fits one line of results."""
    return str(name).replace("\n", "\\n").replace("\t", "\\t")


def escaped(text: str) -> str:
    """Return a text with control characters, marks of text direction and lone surrogates as escapes.

    File and class names are untrusted: control characters in them could clear the screen or fake other lines. Lone surrogates
    stand for bytes of a file name that are not UTF-8; a text with them cannot be encoded.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(text: str) -> None:
    """Write a line on stderr, for anything that is not the result; errors of a closed stderr are ignored."""
    if is_first():
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{escaped(text)}\n")
            sys.stderr.flush()


def exit_at_once(code: int) -> NoReturn:
    """End the process without Python's shutdown, in which running threads of torch could cause an abort."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a closed pipe or stream
            stream.flush()
    os._exit(code)
