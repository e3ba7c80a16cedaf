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
"""Beginnings of cells that a spreadsheet would execute as formulas."""
NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")
"""A negative number, which is no formula, such as the coordinate of a joint outside of the image."""
Row = list[str]


def write_table(file: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write rows as CSV for spreadsheets, completely or not at all: in UTF-8 with a byte-order mark, and without formulas.

    Names are untrusted, and a spreadsheet executes a cell that begins like a formula; such a cell is prefixed by an apostrophe
    (OWASP, "CSV Injection").
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, BOM_UTF8 + b"".join(map(_line, rows)))


@contextmanager
def growing_table(file: Path, head: Sequence[str]) -> Iterator[Callable[[Sequence[str]], None]]:
    """Yield a function that writes one row of a table; the file has the name `partial_of` until the end.

    After an error, the complete rows stay in the partial file, and a line on stderr reports it.

    Raises:
        OSError: the disk is full, or another command writes the same table.
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
    """Write a line completely or not at all, even if the disk is full; return 1, the number of rows."""
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
    returns = any("\r" in cell for cell in cells)  # csv would quote "\r" only as a line end
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL).writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")


def read_table(file: Path, *columns: str) -> list[Row]:
    """Return the rows that `write_table` wrote; raises `DataError` for another file, or if one of the columns is missing."""
    what = f"the table is damaged: every row needs the columns {', '.join(columns)}"
    try:
        with text_file(file) as table:
            rows = [[_without_apostrophe(cell) for cell in row] for row in csv.reader(table, strict=True)]
        if rows and {*columns} <= {*rows[0]} and all(len(row) == len(rows[0]) for row in rows):
            return rows
    except OSError as error:
        what = f"the table cannot be read: {error.strerror}"
    except (ValueError, csv.Error) as error:
        what = f"the table is damaged: {error}"
    raise DataError(what, where=file, hint="restore the file from a copy")


def _without_apostrophe(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) and not NUMBER.fullmatch(cell) else cell
