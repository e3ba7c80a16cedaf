"""A reader for tables of spreadsheets and scripts, used for labels, captions, sentences and joints."""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from vitrail.data.items import split_of
from vitrail.errors import DataError
from vitrail.files import is_text, text_file
from vitrail.plain_text import clean, is_odd
from vitrail.settings import brief

JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of files with a JSON object on each line; see `vitrail.data.tables.json_rows`."""
ENDINGS = (".csv", ".tsv", ".tab", *JSON_LINES)
"""Suffixes of tables that are found in a folder."""
NAMED_ENDINGS = (*ENDINGS, ".txt")
"""Suffixes of tables that are given by their path."""
BETWEEN = {",": "commas", ";": "';'", "\t": "tabs", "|": "'|'"}
"""Separators of columns, and their names in messages."""
IMAGE = (
    "filename", "file_name", "file", "filepath", "file_path", "path", "image_path", "img_path", "image_name", "img", "fname",
    "image_file", "image_index",
)  # fmt: skip
"""Other names of the column ``image``."""
SPLIT = ("subset",)
"""Other names of the column ``split``."""
NOT_MARKED = {"", "nan", "na", "n/a", "#n/a", "<na>", "nat", "null", "none"}
"""Lower-case contents of cells without a value: empty, or as pandas and spreadsheets write it."""
LONGEST, MOST = 2**20, 2**34
"""Size limits: characters of a line, and bytes of a file."""
MOST_NAMED = 8
"""Number of unused columns that a note names; the others are counted."""
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\s,;|]*', re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
_BEHIND_QUOTES = "expected after"
"""Part of the csv module's message for text after a closing quotation mark; reading can continue on the next line."""

Columns = Mapping[str, str]
"""For each column that a reader uses: the reader's word (``image``) and the name in the header (``filename``)."""


class Row(NamedTuple):
    """One line of a table, after its header."""

    line: int
    cells: dict[str, str]
    """The cells by the reader's words for the columns, each through `clean`, except for the name of an image."""
    problem: str
    """Reason why the line cannot be used; then it has no cells. "" for a usable line."""


class Table:
    """A table in UTF-8. The constructor reads the header, and `rows` reads the lines after it.

    Separator: the first of `BETWEEN` for which ``columns_of`` accepts the header; a line ``sep=;``, as Excel writes it, may name
    another. Empty rows are skipped. Quotation marks: in a table with tabs and no quotation mark in the header, marks around a
    complete cell are removed and all others are part of the text; in other tables they quote cells as in CSV.

    Args:
        file: the table.
        columns_of: a function from the cleaned names in a header to the columns to use; raises `DataError` for a wrong header.
        literal: in a table with tabs, keep quotation marks around a complete cell, too.

    Raises:
        DataError: the file cannot be read, is no table, or lacks the columns.
    """

    def __init__(self, file: Path, columns_of: Callable[[list[str]], Columns], *, literal: bool = False):
        self.file, self.literal = file, literal
        self.empty_rows = self.cleaned = 0
        self._skipped, own, header = _before_header(file)
        refused: list[tuple[float, DataError]] = []
        for separator in dict.fromkeys([*own, *BETWEEN]):
            self.separator, self._quoted, names = separator, separator != "\t" or '"' in header, list[str]()
            try:
                names = self._names()
                self.columns = dict(columns_of(names))
                if twice := next((name for name in self.columns.values() if names.count(name) > 1), None):
                    raise DataError(f"{names.count(twice)} columns are called {brief(twice)}", hint="give them different names")
                break
            except DataError as error:
                where = error.where or f"{file}:{self._skipped + 1}"
                refused.append((len(names) or math.inf, DataError(error.what, where=where, hint=error.hint)))
        else:
            raise max(refused, key=lambda pair: pair[0])[1]
        self.names = names

    def _names(self) -> list[str]:
        with text_lines(self.file) as lines:
            try:
                raw: list[str] = next(self._reader(lines), [])
            except csv.Error as error:
                raise self._damaged(self._skipped + 1, error) from None
        names = [clean(name) for name in raw]
        if not is_text("".join(raw)) or "\0" in "".join(raw):  # UTF-16 without a mark has zero bytes
            hint = "save it as CSV in UTF-8"
            raise DataError(f"{self.file.name} is not in UTF-8", where=f"{self.file}:{self._skipped + 1}", hint=hint)
        while names and not names[-1]:
            names.pop()
        return names

    def _reader(self, lines: Iterator[str]) -> Any:
        quoting: Any = csv.QUOTE_MINIMAL if self._quoted else csv.QUOTE_NONE
        return csv.reader(islice(lines, self._skipped, None), strict=True, delimiter=self.separator, quoting=quoting)

    def _damaged(self, line: int, error: csv.Error) -> DataError:
        what, hint = f"the table is damaged: {error}", "correct that line"
        if "end of data" in str(error):
            what, hint = "the table is damaged: a quotation mark is opened here and never closed", "close or double it"
        return DataError(what, where=f"{self.file}:{line}", hint=hint)

    def rows(self) -> Iterator[Row]:
        """Yield the rows after the header, without empty ones; raises `DataError` if the table is damaged."""
        position = {word: self.names.index(name) for word, name in self.columns.items()}
        self.empty_rows = self.cleaned = 0
        with text_lines(self.file) as lines:
            reader = self._reader(lines)
            next(reader, None)
            while True:
                begin = self._skipped + reader.line_num + 1
                try:
                    cells = [cell.strip() for cell in next(reader)]
                except StopIteration:
                    return
                except csv.Error as error:
                    if _BEHIND_QUOTES not in str(error):
                        raise self._damaged(begin, error) from None
                    yield Row(begin, {}, "there is text after a closing quotation mark: double the quotation marks inside a cell")
                    continue
                if any(cell and (cell.isprintable() or clean(cell)) for cell in cells):
                    yield self._row(self._skipped + reader.line_num, cells, position)
                else:
                    self.empty_rows += len(cells) > 1

    def _row(self, line: int, cells: list[str], position: Mapping[str, int]) -> Row:
        count = len(self.names)
        while len(cells) > count and not clean(cells[-1]):
            cells.pop()
        if len(cells) != count:
            why = f"; quote cells that contain {BETWEEN.get(self.separator, 'a separator')}" if len(cells) > count else ""
            return Row(line, {}, f"there are {len(cells)} cells for {count} columns{why}")
        own = {word: cells[place] for word, place in position.items()}
        if not is_text("".join(own.values())):
            return Row(line, {}, "the line is not in UTF-8: save the table in UTF-8")
        self.cleaned += sum(map(is_odd, own.values()))
        if not (self._quoted or self.literal):
            own = {word: _unquoted(cell) for word, cell in own.items()}
        return Row(line, {word: cell if word == "image" else clean(cell) for word, cell in own.items()}, "")

    def notes(self, *more: str, shown: Sequence[str] = ()) -> tuple[str, ...]:
        """Return one line on how the table was interpreted, or nothing for a plain table. Call this after reading all rows.

        Args:
            more: further parts of the line.
            shown: the reader's words whose columns the line names; by default all.
        """
        columns = {word: name for word, name in self.columns.items() if not shown or word in shown}
        usual = "," if self.file.suffix.lower() == ".csv" else "\t"
        parts = [] if self.separator in (",", usual) else [f"separated by {BETWEEN.get(self.separator, repr(self.separator))}"]
        if any(word != name for word, name in columns.items()):
            (first, name), *others = columns.items()
            parts += [f"{first} in the column {brief(name)}", *(f"{word} in {brief(name)}" for word, name in others)]
        parts += more
        unused = [brief(name) for name in self.names if name and name not in self.columns.values()]
        if len(unused) > MOST_NAMED:
            unused[MOST_NAMED:] = [f"{len(unused) - MOST_NAMED:,} more"]
        parts += [f"not used: {' and '.join(filter(None, (', '.join(unused[:-1]), unused[-1])))}"] if unused else []
        parts += [f"empty rows skipped: {self.empty_rows:,}"] if self.empty_rows else []
        parts += [f"cells cleaned of invisible characters or odd blanks: {self.cleaned:,}"] if self.cleaned else []
        return (f"{self.file.name}: {', '.join(parts)}",) if parts else ()


@contextmanager
def text_lines(file: Path, newline: str = "") -> Iterator[Iterator[str]]:
    """Open a table or text in UTF-8 as an iterator of lines; invalid bytes become surrogates, which `is_text` finds.

    Args:
        file: the file.
        newline: the line separator, as of `open`; by default any.

    Raises:
        DataError: the file cannot be read, or a line is longer than `LONGEST`.
    """
    try:
        with text_file(file, MOST, newline=newline, errors="surrogateescape") as text:
            yield _short(text, file)
    except OSError as error:
        hint = "check the path; a table is a CSV file in UTF-8"
        raise DataError(f"{file.name} cannot be read: {error.strerror}", where=file, hint=hint) from None
    except UnicodeDecodeError:  # possible in UTF-16 only
        raise DataError(f"{file.name} is damaged: it is not in UTF-16", where=file, hint="save it in UTF-8") from None


def _short(text: TextIO, file: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: text.readline(LONGEST + 1), ""), 1):
        if len(line) > LONGEST:
            raise DataError("the line is longer than a megabyte", where=f"{file}:{number}", hint="split it, or remove it")
        yield line


def _before_header(file: Path) -> tuple[int, list[str], str]:
    """Return the number of lines before the header, the separators named by lines such as ``sep=;``, and the raw header."""
    separators: list[str] = []
    with text_lines(file) as lines:
        for number, line in enumerate(lines):
            if named := _SEPARATOR_LINE.fullmatch(line.strip("\ufeff\r\n")):
                separators.append(named[1])
            elif clean(line).strip(' ,;|\t"'):
                return number, separators, line
    return 0, separators, ""


def _unquoted(cell: str) -> str:
    """Return a cell without quotation marks around it, which spreadsheets write around commas."""
    inside = cell[1:-1].replace('""', "")
    around = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inside
    return cell[1:-1].replace('""', '"') if around else cell


def column_of(names: Sequence[str], word: str, others: Sequence[str] = (), *, first: bool = False) -> str | None:
    """Return the name of the column for a reader's word, None if there is none.

    An exact match wins; otherwise case, blanks, hyphens and underscores are ignored.

    Args:
        names: the names of all columns.
        word: the reader's word for the column, which has precedence.
        others: other usual names of the column, in order of precedence.
        first: if several columns match, return the first; else this is an error.

    Raises:
        DataError: several columns match.
    """
    by_word = [(plain_name(name), name) for name in names]
    called = [name for name in names if name == word] or [name for plain, name in by_word if plain == plain_name(word)]
    called = called or [name for other in others for plain, name in by_word if plain == other]
    if len(called) > 1 and not (first and called[0] != called[1]):
        what = f"{' and '.join(map(brief, called))} could both be the column of the {word}"
        if len(set(called)) == 1:
            what = f"{len(called)} columns are called {brief(called[0])}"
        raise DataError(f"{what}; there are {listed(names)}", hint=f"call one column {word!r}")
    return called[0] if called else None


def plain_name(name: str) -> str:
    """Return the name of a column in lower case, with underscores for blanks and hyphens."""
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def listed(names: Sequence[str]) -> str:
    return ", ".join(map(brief, names)) or "none"


def split_in(cells: Mapping[str, str]) -> str:
    """Return the split of a row, "all" in a table without a split column; raises `ValueError` for an unknown split."""
    if "split" not in cells:
        return "all"
    if split := split_of(cells["split"]):
        return split
    raise ValueError(f"the split {brief(cells['split'])} is none of train, val, test")


def number_in(cell: str, *, separator: str = ",") -> float | None:
    """Return the number in a cell, None for a cell without a value; raises `ValueError` for other text.

    A decimal comma is read, except for ``"1,234"`` in a table with commas, which could be a thousand.
    """
    if cell.lower() in NOT_MARKED:
        return None
    if _DECIMAL_COMMA.fullmatch(cell) and (separator != "," or len(cell.rpartition(",")[2]) != 3):
        cell = cell.replace(",", ".")
    return float(cell)
