"""Tables in UTF-8 whose first line names the columns."""

import csv
from pathlib import Path

from vitrail.data.items import SPLIT_OF_NAME
from vitrail.errors import DataError
from vitrail.files import text_file
from vitrail.settings import brief

TABS = (".tsv", ".tab")
"""Endings of tables with tabs between columns; others have commas."""


def read_rows(file: Path, hint: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the cells of every line with its number.

    Raises:
        DataError: no such table, with a ``hint`` at its shape.
    """
    try:
        with text_file(file) as text:
            reader = csv.reader(text, strict=True, delimiter="\t" if file.suffix.lower() in TABS else ",")
            columns = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except OSError as error:
        raise DataError(f"{file.name} cannot be read: {error.strerror}", where=file, hint="check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"{file.name} is not in UTF-8", where=file, hint="save it in UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{file.name} is no table: {error}", where=f"{file}:{reader.line_num}", hint=hint) from None
    if twice := next((name for name in columns if name and columns.count(name) > 1), None):
        raise DataError(f"two columns are called {brief(twice)}", where=file, hint="name each once")
    return columns, rows


def row_of(columns: list[str], cells: list[str]) -> dict[str, str]:
    """A line by its columns; raises `ValueError` where it has another number of cells."""
    if len(cells) != len(columns):
        raise ValueError(f"there are {len(cells)} cells for {len(columns)} columns")
    return dict(zip(columns, cells, strict=True))


def split_in(row: dict[str, str]) -> str:
    """The split that a line names; "all" in a table without splits. Raises `ValueError` for any other word."""
    if "split" not in row:
        return "all"
    if split := SPLIT_OF_NAME.get(row["split"].lower()):
        return split
    raise ValueError(f"the split {brief(row['split'])} is none of train, val, test")
