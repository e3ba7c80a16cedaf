"""Images listed in a table: a CSV file with the columns ``image,label[,split]``."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from vitrail.data.items import SPLIT_OF_NAME, SPLITS, Contents, Issue, Named, with_indices
from vitrail.errors import DataError

TABLE = "labels.csv"
"""The table that a folder without folders for classes may hold."""
SEPARATOR = ";"
"""Stands between the labels of an image that has several."""


def read_table(file: Path) -> Contents:
    """Read a CSV file in UTF-8 whose header names ``image``, ``label`` and perhaps ``split``, among others.

    Paths of images are relative to the file's folder. One label like ``cat;dog`` makes the data multi-label: an empty
    label then means none of the classes. Classes sort naturally, 2 before 10.

    Raises:
        DataError: no such table. What is wrong with a single row is an issue of the contents.
    """
    rows = _rows(file)
    multi_label = any(SEPARATOR in row.get("label", "") for _, row in rows)
    issues: list[Issue] = []
    lines: dict[str, int] = {}
    found: list[Named] = []
    for line, row in rows:
        name = row.get("image", "")
        image = file.parent / name
        labels = dict.fromkeys(part.strip() for part in row.get("label", "").split(SEPARATOR) if part.strip())
        split = SPLIT_OF_NAME.get(row["split"].lower(), "") if "split" in row else "all"
        wrong = list(_wrong(row, image, lines.get(os.path.normpath(image)), bool(labels) or multi_label, split))
        lines.setdefault(os.path.normpath(image), line)
        issues += [Issue(kind, f"{file}:{line}", what) for kind, what in wrong]
        if not wrong:
            found.append(Named(split, name, image, tuple(labels)))
    return with_indices(str(file), found, multi_label=multi_label, issues=issues)


def _rows(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Every row by column with the number of its line; {} for a row with too few or too many cells."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            columns = [cell.strip().lower() for cell in next(reader, [])]
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except UnicodeDecodeError:
        raise DataError("the table is not in UTF-8", where=file, hint="save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise DataError(f"the table is damaged: {error}", where=f"{file}:{reader.line_num}", hint="correct that line") from None
    for name in ("image", "label", "split"):
        if columns.count(name) != 1 and (name != "split" or name in columns):
            raise DataError(
                f"{columns.count(name) or 'no'} columns are called {name!r}; there are {', '.join(map(repr, columns)) or 'none'}",
                where=f"{file}:1",
                hint="begin the table with the line image,label or image,label,split; commas stand between the columns",
            )
    if not rows:
        raise DataError("no images listed", where=file, hint="give every image a row: image,label or image,label,split")
    return [(line, dict(zip(columns, row, strict=True)) if len(row) == len(columns) else {}) for line, row in rows]


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
        yield "missing-file", f"there is no file {image}"
    if not labelled:
        yield "no-label", f"{image} has no label"
    if not split:
        yield "bad-split", f"{row['split']!r}, the split of {image}, is none of {', '.join(SPLITS)}"
