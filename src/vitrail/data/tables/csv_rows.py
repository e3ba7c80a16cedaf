"""Tables as spreadsheets and scripts write them: one reader for labels, captions, sentences and joints."""

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
"""Suffixes of files with a JSON object on every line, see `vitrail.data.tables.json_rows`."""
ENDINGS = (".csv", ".tsv", ".tab", *JSON_LINES)
"""Suffixes of tables in a folder."""
NAMED_ENDINGS = (*ENDINGS, ".txt")
"""Suffixes of tables that are named by their path."""
BETWEEN = {",": "commas", ";": "';'", "\t": "tabs", "|": "'|'"}
"""Separators of columns, and how messages call them."""
IMAGE = (
    "filename", "file_name", "file", "filepath", "file_path", "path", "image_path", "img_path", "image_name", "img", "fname",
    "image_file", "image_index",
)  # fmt: skip
"""Other names of the column ``image``."""
SPLIT = ("subset",)
"""Other names of the column ``split``."""
NOT_MARKED = {"", "nan", "na", "n/a", "#n/a", "<na>", "nat", "null", "none"}
"""Cells without a value, in small letters: empty ones, and what pandas and spreadsheets write for them."""
LONGEST, MOST = 2**20, 2**34
"""Most characters of a line, and most bytes of a file."""
MOST_NAMED = 8
"""Most unused columns in a note; more are counted."""
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\s,;|]*', re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
_BEHIND_QUOTES = "expected after"
"""A part of the csv library's message where text follows a closing quotation mark; it can read on behind that line."""

Columns = Mapping[str, str]
"""The name in the header of each column that a reader uses, by the reader's own word for it."""


class Row(NamedTuple):
    """A line of a table."""

    line: int
    cells: dict[str, str]
    """Clean, by the reader's words for the columns; the name of an image stays as it is."""
    problem: str
    """Reason why the line cannot be used, and has no cells; "" where it can."""


class Table:
    """A table in UTF-8 whose header is read; `rows` reads the rest.

    The separator is the first of `BETWEEN` for which ``columns_of`` accepts the header, since sentences have commas and
    semicolons, too. A line ``sep=;``, which Excel writes, and rows of separators alone are passed over. Between tabs quotation
    marks belong to a cell, unless they are around all of it or there are some in the header.

    Args:
        file: the table.
        columns_of: returns the columns to use of the names in a header, cleaned; raises `DataError` for a header without them.
        literal: between tabs, quotation marks around a cell belong to it as well.

    Raises:
        DataError: it cannot be read, is no table, or has no such columns.
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
                    raise DataError(f"{names.count(twice)} columns are called {brief(twice)}", hint="name each once")
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
        if not is_text("".join(raw)) or "\0" in "".join(raw):  # as every other byte of UTF-16
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
            what, hint = "the table is damaged: a quotation mark is opened here and never closed", "close it, or double it"
        return DataError(what, where=f"{self.file}:{line}", hint=hint)

    def rows(self) -> Iterator[Row]:
        """Yield every line behind the header that is not empty; raises `DataError` where the table is damaged."""
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
                    yield Row(begin, {}, "text stands behind a closing quotation mark: double the marks inside a cell")
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
            why = f"; quote what has {BETWEEN.get(self.separator, 'a separator')} in it" if len(cells) > count else ""
            return Row(line, {}, f"there are {len(cells)} cells for {count} columns{why}")
        own = {word: cells[place] for word, place in position.items()}
        if not is_text("".join(own.values())):
            return Row(line, {}, "the line is not in UTF-8: save the table in UTF-8")
        self.cleaned += sum(map(is_odd, own.values()))
        if not (self._quoted or self.literal):
            own = {word: _unquoted(cell) for word, cell in own.items()}
        return Row(line, {word: cell if word == "image" else clean(cell) for word, cell in own.items()}, "")

    def notes(self, *more: str, shown: Sequence[str] = ()) -> tuple[str, ...]:
        """Return how the table was understood, as one line; nothing of a plain one. Call it when the rows are read.

        Args:
            more: further parts of the line.
            shown: words whose columns are named, where one is called otherwise; by default all.
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
        parts += [f"empty rows passed over: {self.empty_rows:,}"] if self.empty_rows else []
        parts += [f"cells cleaned of invisible characters or odd blanks: {self.cleaned:,}"] if self.cleaned else []
        return (f"{self.file.name}: {', '.join(parts)}",) if parts else ()


@contextmanager
def text_lines(file: Path, newline: str = "") -> Iterator[Iterator[str]]:
    """Open the lines of a table or text in UTF-8; other bytes become surrogates, which `is_text` finds.

    Args:
        file: to read.
        newline: what ends a line; by default anything that does.

    Raises:
        DataError: it cannot be read, or a line is longer than `LONGEST`.
    """
    try:
        with text_file(file, MOST, newline=newline, errors="surrogateescape") as text:
            yield _short(text, file)
    except OSError as error:
        hint = "check the path; a table is a CSV file in UTF-8"
        raise DataError(f"{file.name} cannot be read: {error.strerror}", where=file, hint=hint) from None
    except UnicodeDecodeError:  # of UTF-16 alone
        raise DataError(f"{file.name} is damaged: it is not in UTF-16", where=file, hint="save it in UTF-8") from None


def _short(text: TextIO, file: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: text.readline(LONGEST + 1), ""), 1):
        if len(line) > LONGEST:
            raise DataError("a line of more than a megabyte", where=f"{file}:{number}", hint="break it, or take it out")
        yield line


def _before_header(file: Path) -> tuple[int, list[str], str]:
    """Return the number of lines before the header, the separators that a line ``sep=;`` names, and the header as it stands."""
    separators: list[str] = []
    with text_lines(file) as lines:
        for number, line in enumerate(lines):
            if named := _SEPARATOR_LINE.fullmatch(line.strip("\ufeff\r\n")):
                separators.append(named[1])
            elif clean(line).strip(' ,;|\t"'):
                return number, separators, line
    return 0, separators, ""


def _unquoted(cell: str) -> str:
    """Return a cell without the quotation marks around it, which spreadsheets set around commas."""
    inside = cell[1:-1].replace('""', "")
    around = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inside
    return cell[1:-1].replace('""', '"') if around else cell


def column_of(names: Sequence[str], word: str, others: Sequence[str] = (), *, first: bool = False) -> str | None:
    """Return the name of a column, None where there is none.

    Capitals, blanks, hyphens and underscores matter only where the exact name is there, too.

    Args:
        names: of all columns.
        word: our own name of the column, which comes before all others.
        others: further names, the usual ones first.
        first: take the most usual of several.

    Raises:
        DataError: several columns could be meant.
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
    """Return the name of a column in small letters, with underscores for blanks and hyphens."""
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def listed(names: Sequence[str]) -> str:
    return ", ".join(map(brief, names)) or "none"


def split_in(cells: Mapping[str, str]) -> str:
    """Return the split that a row names; "all" in a table without splits. Raises `ValueError` for any other word."""
    if "split" not in cells:
        return "all"
    if split := split_of(cells["split"]):
        return split
    raise ValueError(f"the split {brief(cells['split'])} is none of train, val, test")


def number_in(cell: str, *, separator: str = ",") -> float | None:
    """Return the number in a cell, None where nothing is marked; raise `ValueError` for anything else.

    A decimal comma is read, but not in ``1,234`` in quotes between commas, which could be a thousand.
    """
    if cell.lower() in NOT_MARKED:
        return None
    if _DECIMAL_COMMA.fullmatch(cell) and (separator != "," or len(cell.rpartition(",")[2]) != 3):
        cell = cell.replace(",", ".")
    return float(cell)
