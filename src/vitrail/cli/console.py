"""Output of commands: results on stdout, everything else on stderr; of several processes only the first prints."""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

from cyclopts import Parameter, Token

from vitrail.errors import DataError
from vitrail.runtime.terminal import escaped, interactive, is_first, is_one_of_several, note

__all__ = [
    "Whole",
    "WholeOfStages",
    "abandon_closed_streams",
    "interactive",
    "is_first",
    "json_text",
    "note",
    "number",
    "print_unreadable",
    "printed",
    "problem",
    "program",
    "report_unreadable",
    "result",
    "result_json",
]


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    return _whole_number(tokens[0].value)


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _whole_of_stages(kind: Any, tokens: Sequence[Token]) -> int | tuple[int, ...]:
    found = tuple(_whole_number(text) for text in tokens[0].value.split(","))
    return found[0] if len(found) == 1 else found


Whole = Annotated[int, Parameter(converter=_whole)]
"""An integer of the command line; 1.5 is an error, and not rounded."""
WholeOfStages = Annotated[int | tuple[int, ...], Parameter(converter=_whole_of_stages, n_tokens=1)]
"""An integer, or one for each stage of a model: 1,2,5,8."""


def result(text: str) -> None:
    """Print a result as text."""
    if is_first():
        print(escaped(text), flush=True)


def result_json(values: Any) -> None:
    """Print a result as one JSON document."""
    if is_first():
        print(json_text(values), flush=True)


def json_text(values: Any) -> str:
    """Return values as JSON; without UTF-8 on stdout, in ASCII with escapes."""
    letters = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    return json.dumps(values, indent=2, ensure_ascii=not letters, allow_nan=False)


def printed(*, json: bool) -> AbstractContextManager[Callable[[Any], None]]:
    """Return a context with a function that prints a value at once: as a line, or as an entry of one JSON document."""
    return _printed_list() if json else contextlib.nullcontext(result)


@contextlib.contextmanager
def _printed_list() -> Iterator[Callable[[Any], None]]:
    """Print a JSON list entry by entry; an error or signal closes the list before it is raised."""
    count = 0

    def write(value: Any) -> None:
        nonlocal count
        count += 1
        entry = json_text(value).replace("\n", "\n  ")
        print(f"{'[' if count == 1 else ','}\n  {entry}", end="", flush=True)

    try:
        yield write
    except BaseException as error:
        if count and not isinstance(error, BrokenPipeError):
            with contextlib.suppress(OSError):
                print("\n]", flush=True)
            note(f"not complete: the JSON document has {count:,} entries")
        raise
    print("\n]" if count else "[]", flush=True)


def abandon_closed_streams() -> None:
    """Discard output for a closed pipe; otherwise Python would print an error about it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def problem(what: str, where: object = None, hint: str | None = None, *, foreseen: bool = True) -> None:
    """Print an error on stderr in three lines: what, where, what to do.

    With several processes, a ``foreseen`` error occurs in all, so only one process of each machine prints it; an unexpected error
    is printed by every process.
    """
    if foreseen and is_one_of_several() and os.environ.get("LOCAL_RANK", "0") != "0":
        return
    lines = [f"error: {' '.join(what.split())}"]
    if where is not None:
        lines.append(f"where: {shorten(str(where), 300, placeholder='…')}")
    if hint is not None:
        hint = f"{program()} {hint.removeprefix('vitrail ')}" if hint.startswith("vitrail ") else hint
        lines.append(f"what to do: {hint}")
    print(escaped("\n".join(lines)), file=sys.stderr)


def report_unreadable(failures: Sequence[DataError]) -> None:
    """Print the errors of unreadable images; if there are any, exit with the code of `DataError`."""
    print_unreadable(failures)
    if failures:
        sys.exit(DataError.exit_code)


def print_unreadable(failures: Sequence[DataError]) -> None:
    """Print the errors of unreadable images."""
    for failure in failures:
        problem(failure.what, failure.where, failure.hint)


def program() -> str:
    """Return the program as the user called it, so that suggested commands can be pasted."""
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("vitrail", "__main__.py"):
        return "python -m vitrail"
    return "vitrail" if shutil.which("vitrail") or called.name != "vitrail" else os.path.relpath(called)


def number(text: str) -> str | int:
    """Convert a word of the command line to an integer if it is one."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text
