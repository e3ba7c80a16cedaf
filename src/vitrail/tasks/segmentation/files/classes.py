"""The classes of masks: from the table `classes.csv`, or from the values in the masks."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from vitrail.data.images.decode import VALUES, Source, mask_image
from vitrail.data.tables.csv_rows import Columns, Table, column_of, listed
from vitrail.errors import DataError, UnreadableImageError
from vitrail.settings import brief
from vitrail.tasks.segmentation.files.coding import VOID, WIDE_VOID, Color, Row, color_in

CLASSES = "classes.csv"
NAME, INDEX = ("class", "class_name", "label"), ("id", "value", "class_id", "class_index")
COLOR, PRIMARY = ("colour", "rgb", "hex"), {"red": ("r",), "green": ("g",), "blue": ("b",)}
"""Other names of the columns."""
SHAPE = "the columns are index,name or name,red,green,blue, or all five; a colour may be in one column color, as #00ff00"


def read_classes(file: Path) -> list[Row]:
    """Read the table of classes: ``index,name``, ``name,red,green,blue``, or both.

    Without indices and colours, a class has its position in the table as its index, from 0.

    Raises:
        DataError: the file is no such table, or a row is wrong.
    """
    table, rows = Table(file, _columns), list[Row]()
    for line, cells, problem in table.rows():
        try:
            if problem or not cells["name"]:
                raise ValueError(problem or "the class has no name")
            rows.append(Row(cells["name"], _value(cells, len(rows)), _color(cells)))
        except ValueError as error:
            raise DataError(str(error), where=f"{file}:{line}", hint=SHAPE) from None
    return rows


def _columns(names: Sequence[str]) -> Columns:
    find = partial(column_of, names)
    words = {"name": NAME, "index": INDEX, "color": COLOR, **PRIMARY}
    columns = {word: name for word, others in words.items() if (name := find(word, others))}
    if "name" not in columns:
        raise DataError(f"no columns are called 'name'; there are {listed(names)}", hint=SHAPE)
    return columns


def _value(cells: Mapping[str, str], row: int) -> int | None:
    if "index" not in cells:
        return None if "color" in cells or "red" in cells else row
    if not cells["index"].isdecimal() or int(cells["index"]) > WIDE_VOID:
        raise ValueError(f"the index {brief(cells['index'])} is no whole number from 0 to {WIDE_VOID:,}")
    return int(cells["index"])


def _color(cells: Mapping[str, str]) -> Color | None:
    written = cells.get("color", " ".join(cells.get(word, "") for word in PRIMARY))
    if not written.strip():
        return None
    color = color_in(written)
    if color is None:
        raise ValueError(f"the colour {brief(written)} is not red, green, blue from 0 to 255, nor #rrggbb")
    return color


def classes_in(masks: Iterable[Source], where: Path) -> list[Row]:
    """Return a class for each value in the masks, named by the value. All masks are read; wrong ones are left to the checks.

    The colours are those of the first palette. 255 is void, or 65,535 if there are more than 255 values.

    Raises:
        DataError: no mask can be read, or masks have colours instead of values.
    """
    values, palette, first = set[int](), list[int](), None
    for mask in masks:
        try:
            image = mask_image(mask)
            if image.mode not in VALUES:
                what = f"a mask has colours ({image.mode}), and no {CLASSES} lists the class of each colour"
                hint = f"write {where / CLASSES} with the columns name,red,green,blue"
                raise UnreadableImageError(what, where=mask, hint=hint)
        except UnreadableImageError as error:
            first = first or error
            continue
        values.update(np.unique(np.asarray(image)).tolist())
        if image.mode == "P" and not palette:
            palette = image.getpalette("RGB") or []
    if first and not values:
        raise first
    known = sorted(map(int, values - {VOID if len(values) <= VOID + 1 else WIDE_VOID}))
    if len(known) < 2:
        what = f"the masks hold only {' and '.join(map(str, sorted(values))) or 'nothing'}, and {VOID} is void"
        hint = f"write {where / CLASSES} with the columns index,name, a row for each value; {VOID} may be a class in it"
        raise DataError(what, where=where, hint=hint)
    rows = [Row(str(value), value) for value in known]
    with suppress(ValueError):  # a palette is shorter than the values: colours are no matter of correctness
        rows = [Row(row.name, row.value, _palette_color(palette, int(row.name))) for row in rows] if palette else rows
    return rows


def _palette_color(palette: Sequence[int], value: int) -> Color:
    red, green, blue = palette[3 * value : 3 * value + 3]
    return red, green, blue
