"""Predictions as a table for spreadsheets: ``predict --csv``, ``evaluate --csv`` and ``predictions.csv``."""

import csv
import io
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from vitrail.errors import DataError
from vitrail.files import partial_of, text_file, write_bytes
from vitrail.runtime.output import report_partial

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that a spreadsheet would run."""
NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")
"""A negative number, such as the position of a joint beyond the image, which is no formula."""
Row = list[str]


def write_table(file: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write rows as CSV for spreadsheets, whole or not at all: in UTF-8 with a mark, and without formulas.

    Names may be anybody's, and a spreadsheet runs a cell that begins like a formula; such a cell gets an apostrophe in front
    (OWASP, "CSV Injection").
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, BOM_UTF8 + b"".join(map(_line, rows)))


@contextmanager
def growing_table(file: Path, head: Sequence[str]) -> Iterator[Callable[[Sequence[str]], None]]:
    """Write a table as `write_table` does, but row by row, to `partial_of` the file, which is renamed at the end.

    If anything fails, the whole rows so far stay there, and a line on stderr says so.

    Raises:
        OSError: the disk is full, or another command writes the table.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    rows, partial = 0, partial_of(file)
    with open(partial, "xb", buffering=0) as table:

        def write(row: Sequence[str]) -> None:
            nonlocal rows
            rows += _write_whole(table, _line(row))

        try:
            _write_whole(table, BOM_UTF8 + _line(head))
            yield write
            os.fsync(table)
        except BaseException:
            if rows:
                report_partial(file, f"{rows:,} rows")
            else:
                partial.unlink()
            raise
    partial.replace(file)


def _write_whole(file: FileIO, content: bytes) -> int:
    """Write a line or, where the disk is full, none of it."""
    end, left = file.tell(), content
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        file.truncate(end)
        raise
    return 1


def _line(row: Sequence[str]) -> bytes:
    cells, text = [_plain(cell) for cell in row], io.StringIO()
    returns = any("\r" in cell for cell in cells)  # which csv quotes only where lines end with them
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL).writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")


def read_table(file: Path, *columns: str) -> list[Row]:
    """Return the rows that `write_table` wrote; raises `DataError` for another file, or one without all the columns."""
    what = f"the table is damaged: every row has {', '.join(columns)}"
    try:
        with text_file(file) as table:
            rows = [[_without_apostrophe(cell) for cell in row] for row in csv.reader(table, strict=True)]
        if rows and {*columns} <= {*rows[0]} and all(len(row) == len(rows[0]) for row in rows):
            return rows
    except OSError as error:
        what = f"the table cannot be read: {error.strerror}"
    except (ValueError, csv.Error) as error:
        what = f"the table is damaged: {error}"
    raise DataError(what, where=file, hint="bring it back as it was")


def _without_apostrophe(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) and not NUMBER.fullmatch(cell) else cell
