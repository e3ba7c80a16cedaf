"""Boxes in tables: recognition of box columns under their usual names, and tables of a detector's boxes, one per line."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.data.images.box_preparation import Box
from vitrail.data.tables.csv_rows import IMAGE, Columns, Table, column_of, listed, number_in, plain_name
from vitrail.errors import DataError
from vitrail.settings import brief

SIDES = {
    "left": ("x", "xmin", "x_min", "x1"),
    "top": ("y", "ymin", "y_min", "y1"),
    "width": ("w",),
    "height": ("h",),
    "right": ("xmax", "x_max", "x2"),
    "bottom": ("ymax", "y_max", "y2"),
}
"""Columns of a box, with their other names; each may have the prefix `OF_BOX`."""
OF_BOX = re.compile(r"(bbox|box|bounding_box)[_ .-]", re.IGNORECASE)
SIZED, CORNERED = ("left", "top", "width", "height"), ("left", "top", "right", "bottom")
"""Columns of a box with a size, and of a box with two corners."""
SCORE, CATEGORY = ("confidence", "conf", "probability"), ("category", "label", "class", "name")
"""Other names of the columns for a detector's score and category."""
NUMBER = "image_id"
"""Column that names images by COCO's image id."""
SHAPE = (
    "a table of boxes has the columns image, left, top, width, height and perhaps score; x,y,w,h or xmin,ymin,xmax,ymax will do"
)


def box_columns(names: Sequence[str]) -> Columns:
    """Return the columns of a box; empty if there is none. Raises `DataError` if several columns fit.

    All columns of a box begin as `OF_BOX`, or none does: ``bbox_x,bbox_y`` and the image's ``width,height`` are not a box.
    Corners come before sizes, and ``w,h`` before ``width,height``, which may be the image's.
    """
    bare = {OF_BOX.sub("", name): name for name in reversed(names)}
    found = {word: column_of(list(bare), word, others) for word, others in SIDES.items()}
    found |= {word: short for word in ("width", "height") if (short := column_of(list(bare), word[0], ()))}
    for sides in (CORNERED, SIZED):
        box = {word: bare[name] for word in sides if (name := found[word])}
        if len(box) == len(sides) and len({bool(OF_BOX.match(name)) for name in box.values()}) == 1:
            return box
    return {}


def box_in(cells: Mapping[str, str], table: Table) -> Box | None:
    """Return the box in a row, or None if all sides are empty; raises `ValueError` for missing sides or invalid numbers."""
    words = CORNERED if "right" in table.columns else SIZED
    sides = [side for word in words if (side := marked_number(cells, word, table)) is not None]
    if not sides:
        return None
    if len(sides) < len(words):
        raise ValueError(f"a box needs {', '.join(words)}")
    left, top, width, height = sides
    return Box(left, top, width - left, height - top) if words == CORNERED else Box(left, top, width, height)


def marked_number(cells: Mapping[str, str], word: str, table: Table) -> float | None:
    """Return the number in a cell, or None if it is empty; raises `ValueError` for anything else."""
    cell = cells.get(word, "")
    try:
        value = number_in(cell, separator=table.separator)
    except ValueError:
        raise ValueError(f"{brief(cell)} under {table.columns[word]} is no number") from None
    if value is not None and not abs(value) < 2**31:
        raise ValueError(f"{brief(cell)} under {table.columns[word]} is no place")
    return value


def detected_boxes(file: Path) -> tuple[list[dict[str, Any]], list[DataError], tuple[str, ...]]:
    """Read a detector's boxes from a table, as COCO's results with line and category.

    Errors of invalid lines and notes on how the table was read are returned as well.

    Raises:
        DataError: the file is not such a table.
    """
    table, found, wrong = Table(file, _detected_columns), [], []
    key = NUMBER if plain_name(table.columns["image"]) == NUMBER else "image"
    for line, cells, problem in table.rows():
        try:
            if problem or not cells["image"]:
                raise ValueError(problem or "no image is named")
            box, score = box_in(cells, table), marked_number(cells, "score", table)
            if box is None or min(box.width, box.height) <= 0:
                raise ValueError("there is no box" if box is None else f"the box is {box.width:g} wide and {box.height:g} high")
        except ValueError as error:
            wrong.append(DataError(str(error), where=f"{file}:{line}", hint=SHAPE))
            continue
        name, category = cells["image"].replace("\\", "/"), cells.get("category") or "person"
        score = 1.0 if score is None else score
        found.append({"line": line, key: name, "bbox": list(box), "score": score, "category": category})
    return found, wrong, table.notes()


def _detected_columns(names: Sequence[str]) -> Columns:
    columns = {"image": column_of(names, "image", (*IMAGE, NUMBER)), **box_columns(names)}
    columns |= {"score": column_of(names, "score", SCORE), "category": column_of(names, CATEGORY[0], CATEGORY, first=True)}
    if columns["image"] is None or "left" not in columns:
        raise DataError(f"the table needs a column image and columns of a box; it has {listed(names)}", hint=SHAPE)
    return {word: name for word, name in columns.items() if name is not None}
