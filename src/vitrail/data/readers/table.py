"""Images listed in a table: a CSV file with the columns ``image,label[,split]``, or usual other names of these."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitrail.data.groups import GROUP
from vitrail.data.items import Contents, Issue, Named, natural_key, with_indices
from vitrail.data.readers.image_names import MissingImages, find_image, folder_of, with_suffixes
from vitrail.data.readers.tree import files_of, images_below
from vitrail.data.tables.csv_rows import ENDINGS, IMAGE, SPLIT, Columns, Row, Table, column_of, listed, split_in
from vitrail.data.tables.json_rows import open_table
from vitrail.data.tables.several_labels import CellLabels, labels_in_cells
from vitrail.errors import DataError
from vitrail.settings import brief

TABLE = "labels.csv"
"""Name of the table in a folder that has no class folders."""
METADATA = ("metadata.csv", "metadata.jsonl")
"""Names that the library ``datasets`` gives to the table of an image folder."""
LABEL = ("labels", "class", "class_name", "category", "target", "tags", "finding_labels", "label_name")
"""Other names of the label column."""
NUMBERS = ("image_id", "id")
"""Names of the image column if there is none of the usual names."""
BESIDE_LABELS = ("image", "split", GROUP)
"""Columns that hold no labels."""
ON, OFF = {"1", "1.0", "true", "yes"}, {"", "0", "0.0", "false", "no", "nan"}
"""Lower-case cell values that mean yes and no in a column for one label."""
HINT = (
    "begin the table with the line image,label or image,label,split; filename, path or id work for image, and class or category "
    "for label, and so does a column of 0 and 1 for each label"
)


def table_of(folder: Path) -> Path | None:
    """Return the table of a folder: `TABLE`, one of `METADATA`, or the only table in a folder with images; else None."""
    if usual := next((folder / name for name in (TABLE, *METADATA) if os.path.isfile(folder / name)), None):
        return usual
    tables = [file for file in files_of(folder) if file.suffix.lower() in ENDINGS]
    return tables[0] if len(tables) == 1 and images_below(folder) else None


def labels_in(folder: Path) -> bool:
    """Return True if a folder has a table of labels: `TABLE`, or another table with an image and a label column."""
    table = table_of(folder)
    try:
        return table is not None and (table.name == TABLE or bool(_rows(table)))
    except DataError:
        return False


def has_labels(names: Sequence[str]) -> bool:
    """Return True if one of the column names is a usual name of the label column."""
    return column_of(names, "label", LABEL, first=True) is not None


def read_table(file: Path, group: str | None = None) -> Contents:
    """Read a table in UTF-8 whose first line names the columns ``image``, ``label`` and optionally ``split``.

    Usual other names of the columns work, too. Image paths are relative to `folder_of` the table; see `find_image`. Several
    labels of an image are in one cell, see `labels_in_cells`, or each label has a column of 0 and 1; then an image without a
    label belongs to none of the classes. Classes are sorted naturally: 2 before 10.

    Args:
        file: the table.
        group: the column that names the group of each image; by default `GROUP`, if there is such a column.

    Raises:
        DataError: the file is not such a table. Faults of single rows are reported as issues of the contents.
    """
    table, rows, read, classes = _rows(file, group)
    names = [row.cells["image"] for row in rows if not row.problem]
    folder = folder_of(file, names)
    missing, issues = MissingImages(folder), list[Issue]()
    lines: dict[str, int] = {}
    found: list[Named] = []
    for row, labels in zip(rows, read.labels, strict=True):
        name = row.cells.get("image", "")
        image = find_image(folder, name) or folder / name
        where = os.path.normpath(image)
        wrong = list(_wrong(row, image, lines.get(where), bool(labels) or read.multi_label, missing))
        lines.setdefault(where, row.line)
        issues += [Issue(kind, f"{file}:{row.line}", what) for kind, what in wrong]
        if not wrong:
            found.append(Named(split_in(row.cells), name, image, labels, row.cells.get(GROUP, "")))
    if not any(map(os.path.isfile, lines)) and (prefix := missing.prefix(names)):
        issues = [Issue("missing-file", str(file), prefix), *(issue for issue in issues if issue.kind != "missing-file")]
    said = [read.said] if read.said else []
    if group is None and (said_of_groups := _of_labels(found)):
        found = [replace(one, group="") for one in found]
        said.append(said_of_groups)
    said += [] if folder == file.parent else [f"the images are in {os.path.relpath(folder, file.parent)}"]
    notes = table.notes(*said, shown=("image", "label", "split", GROUP))
    notes += (f"{file.name}: {read.doubt}",) if read.doubt else ()
    return with_indices(str(file), found, classes=classes, multi_label=read.multi_label, issues=issues, notes=notes)


def _of_labels(found: Sequence[Named]) -> str:
    """Return a note if the group column cannot be used, since each label is in one group only; else ""."""
    groups: dict[str, set[str]] = {}
    for one in found:
        for label in one.labels:
            groups.setdefault(label, set()).add(one.group)
    sorts = len(groups) > 1 and all(len(own) == 1 for own in groups.values()) and any(one.group for one in found)
    return f"the column {GROUP!r} does not divide the data, since all images of a label are in one group" if sorts else ""


def _rows(file: Path, group: str | None = None) -> tuple[Table, list[Row], CellLabels, list[str] | None]:
    """Return the table, its rows, the labels of each row, and the classes if each has a column (else None)."""
    table = open_table(file, partial(columns_of, group=group))
    rows = list(table.rows())
    if not rows:
        raise DataError("no images listed", where=file, hint="give every image a row: image,label or image,label,split")
    if "label" in table.columns:
        return table, rows, labels_in_cells([row.cells.get("label", "") for row in rows]), None
    labels = _label_columns(table, rows)
    table.columns = {word: name for word, name in table.columns.items() if word in BESIDE_LABELS or name in labels}
    own = [tuple(name for name in labels if row.cells.get(_of_label(name), "").lower() in ON) for row in rows]
    several = any(len(names) != 1 for names, row in zip(own, rows, strict=True) if not row.problem)
    said = f"a column for each of {len(labels)} labels"
    return table, rows, CellLabels(own, several, said), sorted(labels, key=natural_key)


def columns_of(names: Sequence[str], group: str | None = None) -> Columns:
    """Return the columns of images, labels, splits and groups; without a label column, all other columns are included.

    Raises:
        DataError: there is no image column, or no column that could hold labels.
    """
    find = partial(column_of, names)
    image = find("image", IMAGE) or find("image", NUMBERS, first=True)
    if image is None:
        hint = f"{HINT}; for a table of sentences name two languages: --source en --target de, and to train --task translate"
        raise DataError(f"no columns are called 'image'; there are {listed(names)}", hint=hint)
    label, split = find("label", LABEL), find("split", SPLIT)
    together = find(group or GROUP)
    if group and together is None:
        raise DataError(f"no column is called {group!r}; there are {listed(names)}", hint="give a column with --data.group")
    own = {"image": image, "label": label, "split": split, GROUP: together}
    columns = {word: name for word, name in own.items() if name}
    others = [name for name in names if name and name not in columns.values()]
    if label is None and len(others) < 2:
        raise _no_label(names)
    return columns if label else {**columns, **{_of_label(name): name for name in others}}


def _of_label(name: str) -> str:
    return f"label {name}"


def _no_label(names: Sequence[str]) -> DataError:
    return DataError(f"no columns are called 'label'; there are {listed(names)}", hint=f"call one column 'label': {HINT}")


def _label_columns(table: Table, rows: Sequence[Row]) -> list[str]:
    """Return the columns that hold only 0 and 1; raises `DataError` if there are fewer than two, or if one holds -1, too."""
    labels = []
    for name in (name for word, name in table.columns.items() if word not in BESIDE_LABELS):
        values = {row.cells[_of_label(name)].lower() for row in rows if not row.problem}
        if values <= {*ON, *OFF, "-1", "-1.0"} and not values <= {"", "nan"}:
            if unclear := values - ON - OFF:
                what = f"the column {brief(name)} has {unclear.pop()} as well as 0 and 1"
                raise DataError(what, where=table.file, hint="write 1 where the image has the label, and 0 or nothing elsewhere")
            labels.append(name)
    if len(labels) < 2:
        error = _no_label(table.names)
        raise DataError(error.what, where=table.file, hint=error.hint)
    return labels


def _wrong(row: Row, image: Path, earlier: int | None, labelled: bool, missing: MissingImages) -> Iterator[tuple[str, str]]:
    """Yield the kind and the message of each fault of a row."""
    if row.problem:
        yield "bad-row", row.problem
        return
    if not row.cells["image"]:
        yield "missing-file", "the row names no image"
        return
    if earlier is not None:
        yield "repeated-row", f"{image} is also in line {earlier}"
    elif not os.path.isfile(image):
        near = missing.near(row.cells["image"])
        several = " or ".join(file.name for file in with_suffixes(image))
        yield "missing-file", f"{image} could be {several}" if several else f"there is no file {image}{near}"
    if not labelled:
        yield "no-label", f"{image} has no label"
    try:
        split_in(row.cells)
    except ValueError as error:
        yield "bad-split", f"{error}: {image}"
