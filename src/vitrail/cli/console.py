"""What commands print: results on stdout, everything else on stderr; of several processes the first prints."""

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

from cyclopts import Parameter, Token

from vitrail.errors import DataError
from vitrail.runtime.terminal import escaped, interactive, is_first, is_one_of_several, note

__all__ = [
    "Whole",
    "WholeOfStages",
    "interactive",
    "is_first",
    "note",
    "number",
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
"""A whole number of the command line; 1.5 is refused, not rounded."""
WholeOfStages = Annotated[int | tuple[int, ...], Parameter(converter=_whole_of_stages, n_tokens=1)]
"""One whole number, or one for each stage of a model: 1,2,5,8."""


def result(text: str) -> None:
    """A result, for people."""
    if is_first():
        print(escaped(text))


def result_json(values: Any) -> None:
    """A result, for programs: one JSON document."""
    if is_first():
        letters = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
        print(json.dumps(values, indent=2, ensure_ascii=not letters, allow_nan=False))


def problem(what: str, where: object = None, hint: str | None = None, *, foreseen: bool = True) -> None:
    """An error: what, where, what to do, a line each.

    Of several processes, only one on each machine prints an expected error, which all of them meet; each prints unexpected ones.
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
    """Say which images could not be read, and leave with the exit code for it, if there are any."""
    for failure in failures:
        problem(failure.what, failure.where, failure.hint)
    if failures:
        sys.exit(DataError.exit_code)


def program() -> str:
    """How this program was called, so that commands it suggests can be pasted: it may not be on the PATH."""
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("vitrail", "__main__.py"):
        return "python -m vitrail"
    return "vitrail" if shutil.which("vitrail") or called.name != "vitrail" else os.path.relpath(called)


def number(text: str) -> str | int:
    """A word of the command line as a whole number, where it is one."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text
