"""Images listed in a table: a CSV file with the columns ``image,label[,split]``, or what others call them."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from vitrail.data.decode import SUFFIXES
from vitrail.data.items import SPLITS, Contents, Issue, Named, split_of, with_indices
from vitrail.data.rows import BETWEEN, SPLITS_OF_TABLES, separator_in
from vitrail.data.tree import files_of, folders_of, images_below
from vitrail.errors import DataError
from vitrail.files import regular_file, text_file

TABLE = "labels.csv"
"""The table that a folder without folders for classes may hold."""
ENDINGS = (".csv", ".tsv")
SEPARATOR = ";"
"""Stands between the labels of an image that has several."""
NAMES = {
    "image": ("filename", "file_name", "file", "filepath", "file_path", "path", "image_path", "img_path", "image_name", "img"),
    "label": ("labels", "class", "class_name", "category", "target"),
    "split": SPLITS_OF_TABLES[1:],
}
"""What others call the columns."""
NUMBERS = ("image_id", "id")
"""What they call the column of images where none of these names is there."""


class _Header(NamedTuple):
    """The first line of a table."""

    separator: str
    found: list[str]
    """Its columns, in small letters with underscores for blanks."""
    columns: dict[str, str]
    """What ``image``, ``label`` and perhaps ``split`` are called in it."""

    @property
    def said(self) -> list[str]:
        """How it was understood, where that is not plain."""
        said = [] if self.separator == "," else [f"separated by {BETWEEN[self.separator]}"]
        if any(name != called for name, called in self.columns.items()):
            (_, image), *others = self.columns.items()
            said += [f"image in the column {image!r}", *(f"{name} in {called!r}" for name, called in others)]
        return said


def table_of(folder: Path) -> Path | None:
    """The table of a folder: `TABLE`, or the only one beside images, or None."""
    if os.path.isfile(folder / TABLE):
        return folder / TABLE
    tables = [file for file in files_of(folder) if file.suffix.lower() in ENDINGS]
    return tables[0] if len(tables) == 1 and images_below(folder) else None


def labels_in(folder: Path) -> bool:
    """Whether a table labels the images of a folder; a table of other things, which is not `TABLE`, does not."""
    table = table_of(folder)
    try:
        return table is not None and (table.name == TABLE or bool(_rows(table)))
    except DataError:
        return False


def read_table(file: Path) -> Contents:
    """Read a table in UTF-8 whose first line names ``image``, ``label`` and perhaps ``split``, among others; see `NAMES`.

    Paths of images are relative to the file's folder, or to the one folder in it that holds the first, and may lack their
    suffix. One label like ``cat;dog`` makes the data multi-label: an empty label then means none of the classes. Classes sort
    naturally, 2 before 10.

    Raises:
        DataError: no such table. What is wrong with a single row is an issue of the contents.
    """
    header, rows = _rows(file)
    folder = _folder_of_images(file.parent, [row["image"] for _, row in rows if row.get("image")])
    multi_label = any(SEPARATOR in row.get("label", "") for _, row in rows)
    issues: list[Issue] = []
    lines: dict[str, int] = {}
    found: list[Named] = []
    for line, row in rows:
        name = row.get("image", "")
        image = _image(folder, name) or folder / name
        labels = dict.fromkeys(part.strip() for part in row.get("label", "").split(SEPARATOR) if part.strip())
        split = (split_of(row["split"]) or "") if "split" in row else "all"
        wrong = list(_wrong(row, image, lines.get(os.path.normpath(image)), bool(labels) or multi_label, split))
        lines.setdefault(os.path.normpath(image), line)
        issues += [Issue(kind, f"{file}:{line}", what) for kind, what in wrong]
        if not wrong:
            found.append(Named(split, name, image, tuple(labels)))
    said = header.said + ([] if folder == file.parent else [f"the images are in {folder.name}"])
    notes = (f"{file.name}: {', '.join(said)}",) if said else ()
    return with_indices(str(file), found, multi_label=multi_label, issues=issues, notes=notes)


def _image(folder: Path, name: str) -> Path | None:
    """The file of an image, whose name may lack its suffix, have Windows' strokes or be written in other letters that look alike.

    An é is one letter on some systems, and an e with an accent on others.
    """
    spellings = [name, name.replace("\\", "/"), *(normalize(form, name) for form in ("NFC", "NFD"))]
    for image in (folder / spelling for spelling in dict.fromkeys(spellings)):
        if os.path.isfile(image):
            return image
        whole = _with_suffixes(image) if name else []
        if len(whole) == 1:
            return whole[0]
    return None


def _with_suffixes(image: Path) -> list[Path]:
    """The different files that an image without suffix could be, with one in small letters or in capitals."""
    if image.suffix.lower() in SUFFIXES:
        return []
    whole = [Path(f"{image}{end}") for suffix in SUFFIXES for end in (suffix, suffix.upper()) if os.path.isfile(f"{image}{end}")]
    return [file for place, file in enumerate(whole) if not any(os.path.samefile(file, other) for other in whole[:place])]


def _folder_of_images(folder: Path, names: list[str]) -> Path:
    """The folder that the names in a table start from."""
    if not names or _image(folder, names[0]):
        return folder
    holders = [below for below in folders_of(folder) if _image(below, names[0])]
    return holders[0] if len(holders) == 1 else folder


def _rows(file: Path) -> tuple[_Header, list[tuple[int, dict[str, str]]]]:
    """The header, and every row by column with the number of its line; {} for a row with too few or too many cells."""
    try:
        with text_file(file) as lines:
            header = _header(file, lines.readline())
            lines.seek(0)
            reader = csv.reader(lines, delimiter=header.separator, strict=True)
            next(reader, None)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except OSError as error:
        raise DataError(f"the table cannot be read: {error.strerror}", where=file, hint="give a table as CSV in UTF-8") from None
    except UnicodeDecodeError:
        raise DataError("the table is not in UTF-8", where=_not_text(file), hint="save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise _damaged(file, reader.line_num, error) from None
    if not rows:
        raise DataError("no images listed", where=file, hint="give every image a row: image,label or image,label,split")
    ours = {called: name for name, called in header.columns.items()}
    columns = [ours.get(column, f"column {column}") for column in header.found]
    return header, [(line, dict(zip(columns, row, strict=True)) if len(row) == len(columns) else {}) for line, row in rows]


def _not_text(file: Path) -> str:
    """The first line of a table that is not in UTF-8."""
    with regular_file(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"{file}:{number}"
    return str(file)


def _damaged(file: Path, line: int, error: csv.Error) -> DataError:
    return DataError(f"the table is damaged: {error}", where=f"{file}:{line}", hint="correct that line")


def _header(file: Path, line: str) -> _Header:
    """The columns of a table, by whatever stands between them; raises `DataError` where image or label is not among them."""

    def columns_of(names: list[str]) -> tuple[list[str], dict[str, str]]:
        found = ["_".join(name.lower().replace("-", " ").split()) for name in names]
        return found, _columns(file, found)

    try:
        separator, (found, columns) = separator_in(line, columns_of)
    except csv.Error as error:
        raise _damaged(file, 1, error) from None
    return _Header(separator, found, columns)


def _columns(file: Path, found: list[str]) -> dict[str, str]:
    """What ``image``, ``label`` and perhaps ``split`` are called."""
    columns: dict[str, str] = {}
    for name, others in NAMES.items():
        called = [column for column in found if column == name] or [column for column in found if column in others]
        called = called or [column for column in NUMBERS if name == "image" and column in found]
        if len(called) == 1:
            columns[name] = called[0]
        elif called or name != "split":
            raise _unclear(file, name, called, found)
    return columns


def _unclear(file: Path, name: str, called: list[str], found: list[str]) -> DataError:
    """No column, or several, could be meant."""
    what = f"{len(called) or 'no'} columns are called {name!r}" if len(set(called)) < 2 else ""
    what = what or f"{' and '.join(map(repr, called))} could both be the column of the {name}"
    hint = f"call one column {name!r}: begin the table with the line image,label or image,label,split; "
    hint += "filename, path or id for image and class or category for label are understood, and commas, ; or tabs between them"
    if name == "image" and not called:
        hint += "; if it holds sentences, name two languages: --source en --target de, and to train --task translate"
    return DataError(f"{what}; there are {', '.join(map(repr, found)) or 'none'}", where=f"{file}:1", hint=hint)


def _wrong(row: dict[str, str], image: Path, earlier: int | None, labelled: bool, split: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a row: kinds of issues, and what exactly."""
    if not row:
        yield "bad-row", "the row has not as many cells as the header; a name with a comma needs quotes around it"
        return
    if not row["image"]:
        yield "missing-file", "the row names no image"
        return
    if earlier is not None:
        yield "repeated-row", f"{image} stands in line {earlier}, too"
    elif not os.path.isfile(image):
        several = " or ".join(file.name for file in _with_suffixes(image))
        yield "missing-file", f"{image} could be {several}" if several else f"there is no file {image}"
    if not labelled:
        yield "no-label", f"{image} has no label"
    if not split:
        yield "bad-split", f"{row['split']!r}, the split of {image}, is none of {', '.join(SPLITS)}"
