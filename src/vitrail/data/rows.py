"""Tables in UTF-8 whose first line names the columns."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from vitrail.data.items import split_of
from vitrail.errors import DataError
from vitrail.files import text_file
from vitrail.settings import brief

BETWEEN = {",": "commas", ";": "';'", "\t": "tabs", "|": "'|'"}
"""What may stand between columns, and how it is called."""

SPLITS_OF_TABLES = ("split", "subset")
"""What the column of splits may be called, in small letters."""

T = TypeVar("T")


def separator_in(header: str, columns_of: Callable[[list[str]], T]) -> tuple[str, T]:
    """What stands between the columns in the first line of a table, and what is made of their names.

    Other lines do not count: in sentences there are commas and semicolons, too.

    Args:
        header: the first line.
        columns_of: gets the names that one of `BETWEEN` gives, and raises `DataError` where a table cannot have them.

    Raises:
        DataError: ``columns_of`` takes none; it is the error about the most names.
        csv.Error: a name is longer than the library reads.
    """
    refused: list[tuple[int, DataError]] = []
    for separator in BETWEEN:
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
        try:
            return separator, columns_of(names)
        except DataError as error:
            refused.append((len(names), error))
    raise max(refused, key=lambda pair: pair[0])[1]


def read_rows(
    file: Path, hint: str, columns_of: Callable[[list[str]], object] = list
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the cells of every line with its number.

    What stands between them goes by ``columns_of``, see `separator_in`: commas where it takes any names, as by default.
    Between tabs quotation marks are part of a cell, unless they are around all of it or there are some in the first line, too.

    Raises:
        DataError: no such table, with a ``hint`` at its shape.
    """
    try:
        with text_file(file) as text:
            header = text.readline()
            separator = _separator(file, header, hint, columns_of)
            quoted = separator != "\t" or '"' in header
            text.seek(0)
            quoting: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
            reader = csv.reader(text, strict=True, delimiter=separator, quoting=quoting)
            columns = [name.strip() for name in next(reader, [])]
            plain = str.strip if quoted else _unquoted
            rows = [(reader.line_num, [plain(cell) for cell in row]) for row in reader if row]
    except OSError as error:
        raise DataError(f"{file.name} cannot be read: {error.strerror}", where=file, hint="check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"{file.name} is not in UTF-8", where=file, hint="save it in UTF-8") from None
    except csv.Error as error:
        raise _no_table(file, reader.line_num, error, hint) from None
    if twice := next((name for name in columns if name and columns.count(name) > 1), None):
        raise DataError(f"two columns are called {brief(twice)}", where=file, hint="name each once")
    return columns, rows


def _unquoted(cell: str) -> str:
    """A cell without the quotation marks around it, which spreadsheets set where there is a comma in it."""
    cell = cell.strip()
    inside = cell[1:-1].replace('""', "")
    around = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inside
    return cell[1:-1].replace('""', '"') if around else cell


def _separator(file: Path, header: str, hint: str, columns_of: Callable[[list[str]], object]) -> str:
    try:
        return separator_in(header, columns_of)[0]
    except csv.Error as error:
        raise _no_table(file, 1, error, hint) from None


def _no_table(file: Path, line: int, error: csv.Error, hint: str) -> DataError:
    return DataError(f"{file.name} is no table: {error}", where=f"{file}:{line}", hint=hint)


def row_of(columns: list[str], cells: list[str]) -> dict[str, str]:
    """A line by its columns; raises `ValueError` where it has another number of cells."""
    if len(cells) != len(columns):
        raise ValueError(f"there are {len(cells)} cells for {len(columns)} columns")
    return dict(zip(columns, cells, strict=True))


def split_in(row: dict[str, str]) -> str:
    """The split that a line names; "all" in a table without splits. Raises `ValueError` for any other word."""
    column = next((name for name in row if name.lower() in SPLITS_OF_TABLES), None)
    if column is None:
        return "all"
    if split := split_of(row[column]):
        return split
    raise ValueError(f"the split {brief(row[column])} is none of train, val, test")
