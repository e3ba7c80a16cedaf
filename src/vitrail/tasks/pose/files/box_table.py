"""Boxes in tables: the columns of a box by the names that people give them, and a detector's boxes, a line for each."""

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
"""Columns of a box, and their other names; any of them may begin with `OF_BOX`."""
OF_BOX = re.compile(r"(bbox|box|bounding_box)[_ .-]", re.IGNORECASE)
SIZED, CORNERED = ("left", "top", "width", "height"), ("left", "top", "right", "bottom")
"""Columns of a box with a size, and of one with two corners."""
SCORE, CATEGORY = ("confidence", "conf", "probability"), ("category", "label", "class", "name")
"""Other names of the columns of a detector's score and category."""
NUMBER = "image_id"
"""Column of images by COCO's number."""
SHAPE = (
    "a table of boxes has the columns image, left, top, width, height and perhaps score; x,y,w,h or xmin,ymin,xmax,ymax will do"
)


def box_columns(names: Sequence[str]) -> Columns:
    """Return the columns of a box, nothing where there is none; raises `DataError` where several could be meant.

    Either all begin as `OF_BOX` or none does: ``bbox_x,bbox_y`` beside ``width,height`` of the image are no box. Corners count
    before sides, and ``w,h`` before ``width,height``, which beside them are the image's.
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
    """Return the box in a row, None where no side is marked; raises `ValueError` where some are, or one is no number."""
    words = CORNERED if "right" in table.columns else SIZED
    sides = [side for word in words if (side := marked_number(cells, word, table)) is not None]
    if not sides:
        return None
    if len(sides) < len(words):
        raise ValueError(f"a box needs {', '.join(words)}")
    left, top, width, height = sides
    return Box(left, top, width - left, height - top) if words == CORNERED else Box(left, top, width, height)


def marked_number(cells: Mapping[str, str], word: str, table: Table) -> float | None:
    """Return the number of pixels in a cell, None where nothing is marked; raises `ValueError` for anything else."""
    cell = cells.get(word, "")
    try:
        value = number_in(cell, separator=table.separator)
    except ValueError:
        raise ValueError(f"{brief(cell)} under {table.columns[word]} is no number") from None
    if value is not None and not abs(value) < 2**31:
        raise ValueError(f"{brief(cell)} under {table.columns[word]} is no place")
    return value


def detected_boxes(file: Path) -> tuple[list[dict[str, Any]], list[DataError], tuple[str, ...]]:
    """Return a detector's boxes in a table as COCO's results have them, with the line and the category.

    Beside them are the errors about lines that are no box, and the table's notes.

    Raises:
        DataError: no such table.
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
        raise DataError(f"there is no column image, or there are none of a box; there are {listed(names)}", hint=SHAPE)
    return {word: name for word, name in columns.items() if name is not None}
