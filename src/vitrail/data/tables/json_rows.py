"""Rows of a table from JSON: an object on each line of a file, or a list of objects."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vitrail.data.tables.csv_rows import JSON_LINES, Columns, Row, Table, text_lines
from vitrail.errors import DataError
from vitrail.files import is_text
from vitrail.plain_text import clean, is_odd

NO_OBJECT = "it is no JSON object"
BLANK = object()
"""A marker for an empty line."""


class JsonTable(Table):
    """A table whose rows are JSON objects and whose columns are their keys; a list of captions gives a row for each.

    Args:
        file: the file of the objects.
        columns_of: as for a `Table`.
        values: the parsed objects; any other value becomes a row with a problem.

    Raises:
        DataError: there are no objects, or they lack the keys.
    """

    def __init__(self, file: Path, columns_of: Callable[[list[str]], Columns], values: Iterable[Any]):
        self.file, self.separator, self.empty_rows, self.cleaned = file, ",", 0, 0
        self.values = list(values)
        self.names = list(dict.fromkeys(str(key) for value in self.values if isinstance(value, dict) for key in value))
        try:
            self.columns = dict(columns_of(self.names))
        except DataError as error:
            raise DataError(error.what, where=error.where or file, hint=error.hint) from None

    def rows(self) -> Iterator[Row]:
        """Yield a row for each object, numbered from 1."""
        self.empty_rows = self.cleaned = 0
        for number, value in enumerate(self.values, 1):
            if value is BLANK:
                self.empty_rows += 1
                continue
            if not isinstance(value, dict):
                yield Row(number, {}, NO_OBJECT)
                continue
            captions = value.get(self.columns.get("caption", ""))
            for caption in captions if isinstance(captions, list) else [captions]:
                yield self._row_of(number, value, caption)

    def _row_of(self, number: int, value: dict[str, Any], caption: Any) -> Row:
        cells = {word: _cell(caption if word == "caption" else value.get(name)) for word, name in self.columns.items()}
        if not is_text("".join(cells.values())):
            return Row(number, {}, "it is not in UTF-8")
        self.cleaned += sum(map(is_odd, cells.values()))
        return Row(number, {word: cell if word == "image" else clean(cell) for word, cell in cells.items()}, "")


def open_table(file: Path, columns_of: Callable[[list[str]], Columns], *, literal: bool = False) -> Table:
    """Open a table by its suffix: JSON lines as a `JsonTable`, others as a `Table`. Raises `DataError` as these do."""
    if file.suffix.lower() in JSON_LINES:
        return JsonTable(file, columns_of, _objects(file))
    return Table(file, columns_of, literal=literal)


def _objects(file: Path) -> Iterator[Any]:
    with text_lines(file) as lines:
        for line in lines:
            try:
                text = line.strip("\ufeff \r\n\t")
                yield json.loads(text) if text else BLANK
            except (ValueError, RecursionError):
                yield None


def _cell(value: Any) -> str:
    """Return a JSON value as the text of a cell; items of a list are joined by semicolons."""
    if value is None:
        return ""
    return ";".join(map(_cell, value)) if isinstance(value, list) else str(value).strip()
