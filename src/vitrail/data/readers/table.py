"""Images listed in a table: a CSV file with the columns ``image,label[,split]``, or what others call them."""

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
"""The table that a folder without folders for classes may hold."""
METADATA = ("metadata.csv", "metadata.jsonl")
"""Names of the table of a folder of images in the library ``datasets``."""
LABEL = ("labels", "class", "class_name", "category", "target", "tags", "finding_labels", "label_name")
"""Other names of the column of labels."""
NUMBERS = ("image_id", "id")
"""Names of the column of images where no usual one is there."""
BESIDE_LABELS = ("image", "split", GROUP)
"""Columns without labels."""
ON, OFF = {"1", "1.0", "true", "yes"}, {"", "0", "0.0", "false", "no", "nan"}
"""Cells of a column for one label, in small letters."""
HINT = (
    "begin the table with the line image,label or image,label,split; filename, path or id for image and class or category for "
    "label are understood, and so is a column of 0 and 1 for each label"
)


def table_of(folder: Path) -> Path | None:
    """Return the table of a folder: `TABLE`, one of `METADATA`, or the only one beside images; None without one."""
    if usual := next((folder / name for name in (TABLE, *METADATA) if os.path.isfile(folder / name)), None):
        return usual
    tables = [file for file in files_of(folder) if file.suffix.lower() in ENDINGS]
    return tables[0] if len(tables) == 1 and images_below(folder) else None


def labels_in(folder: Path) -> bool:
    """Return True if a table labels the images of a folder; one of other things, which is not `TABLE`, does not."""
    table = table_of(folder)
    try:
        return table is not None and (table.name == TABLE or bool(_rows(table)))
    except DataError:
        return False


def has_labels(names: Sequence[str]) -> bool:
    """Return True if a column has a name of labels."""
    return column_of(names, "label", LABEL, first=True) is not None


def read_table(file: Path, group: str | None = None) -> Contents:
    """Read a table in UTF-8 whose first line names ``image``, ``label`` and perhaps ``split``, or what others call them.

    Paths of images are relative to the file's folder, or to `folder_of` them; see `find_image`. Several labels of an image stand
    in one cell, see `labels_in_cells`, or each label has a column of 0 and 1: an empty label then means none of the classes.
    Classes sort naturally, 2 before 10.

    Args:
        file: the table.
        group: the column that names the group of each image; `GROUP` by default, if it is there.

    Raises:
        DataError: no such table. What is wrong with a single row is an issue of the contents.
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
    """Return why a column of groups is not used: it sorts labels, as an order of animals does, and not images; else ""."""
    groups: dict[str, set[str]] = {}
    for one in found:
        for label in one.labels:
            groups.setdefault(label, set()).add(one.group)
    sorts = len(groups) > 1 and all(len(own) == 1 for own in groups.values()) and any(one.group for one in found)
    return f"the column {GROUP!r} does not divide the data, since all images of a label are in one group" if sorts else ""


def _rows(file: Path, group: str | None = None) -> tuple[Table, list[Row], CellLabels, list[str] | None]:
    """Return the table, its rows, the labels of each, and the classes where columns name them."""
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
    """Return the columns of images, labels, splits and groups, and where none is of labels all others; raises `DataError`."""
    find = partial(column_of, names)
    image = find("image", IMAGE) or find("image", NUMBERS, first=True)
    if image is None:
        hint = f"{HINT}; if it holds sentences, name two languages: --source en --target de, and to train --task translate"
        raise DataError(f"no columns are called 'image'; there are {listed(names)}", hint=hint)
    label, split = find("label", LABEL), find("split", SPLIT)
    together = find(group or GROUP)
    if group and together is None:
        raise DataError(f"no column is called {group!r}; there are {listed(names)}", hint="name a column by --data.group")
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
    """Return the columns that hold 0 and 1 alone; raises `DataError` where there are fewer than two, or some hold -1 as well."""
    labels = []
    for name in (name for word, name in table.columns.items() if word not in BESIDE_LABELS):
        values = {row.cells[_of_label(name)].lower() for row in rows if not row.problem}
        if values <= {*ON, *OFF, "-1", "-1.0"} and not values <= {"", "nan"}:
            if unclear := values - ON - OFF:
                what = f"the column {brief(name)} has {unclear.pop()} beside 0 and 1"
                raise DataError(what, where=table.file, hint="write 1 where the image has the label, and 0 or nothing elsewhere")
            labels.append(name)
    if len(labels) < 2:
        error = _no_label(table.names)
        raise DataError(error.what, where=table.file, hint=error.hint)
    return labels


def _wrong(row: Row, image: Path, earlier: int | None, labelled: bool, missing: MissingImages) -> Iterator[tuple[str, str]]:
    """Yield the kinds of issues of a row, and what each is."""
    if row.problem:
        yield "bad-row", row.problem
        return
    if not row.cells["image"]:
        yield "missing-file", "the row names no image"
        return
    if earlier is not None:
        yield "repeated-row", f"{image} stands in line {earlier}, too"
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
