"""People in a table: a line for each, with columns for the places of joints."""

import csv
from pathlib import Path

from vitrail.data.items import Issue
from vitrail.data.poses.coco import NO_JOINTS, Annotations, around, joint_of
from vitrail.data.poses.people import Box, Joint, Person, Pose
from vitrail.data.poses.skeleton import Skeleton
from vitrail.data.rows import read_rows, row_of, split_in
from vitrail.data.table import NAMES
from vitrail.errors import ConfigError, DataError
from vitrail.files import text_file
from vitrail.settings import brief

X, Y, SEEN = "_x", "_y", "_v"
"""What the columns of a joint end in."""
BOX = ("left", "top", "width", "height")
SHAPE = "the columns are image, perhaps split, left, top, width, height, and NOSE_x, NOSE_y, perhaps NOSE_v for each joint"


def read_table(file: Path) -> tuple[Annotations, dict[str, list[Person]]]:
    """The people in a table in UTF-8, all of them and by their splits: ``image,left,top,width,height,nose_x,nose_y,nose_v,…``.

    Paths of images are relative to the table's folder. A joint without a place is not marked; one without ``_v`` is seen. Without
    a box it is the one around the joints.

    Raises:
        DataError: no such table. What is wrong with single lines is among the issues.
    """
    columns, rows = read_rows(file, SHAPE)
    joints = [name.removesuffix(X) for name in columns if name.endswith(X)]
    if lonely := next((name for name in joints if name + Y not in columns), None):
        raise DataError(f"there is a column {brief(lonely + X)} and none {brief(lonely + Y)}", where=file, hint=SHAPE)
    if "image" not in columns or not joints:
        raise DataError(f"{file.name} has no column image, or no joints", where=file, hint=SHAPE)
    try:
        found = Annotations(Skeleton.of(joints))
    except ConfigError as error:
        raise DataError(f"the columns name no joints: {error.what}", where=file, hint=SHAPE) from None
    splits: dict[str, list[Person]] = {}
    numbers: dict[str, int] = {}
    for line, cells in rows:
        try:
            row = row_of(columns, cells)
            split, name = split_in(row), row["image"]
            if not name:
                raise ValueError("no image is named")
            pose = _pose(row, joints, numbers.setdefault(name, len(numbers)), line)
        except ValueError as error:
            found.issues.append(Issue("bad-row", f"{file}:{line}", str(error)))
            continue
        if pose is None:
            found.left_out[NO_JOINTS] += 1
            if any(row.get(side) for side in BOX):
                found.note_unmarked(file.parent / name, line)
            continue
        person = Person(f"{name}#{line}", file.parent / name, pose)
        found.people.append(person)
        splits.setdefault(split, []).append(person)
    return found, splits


def has_joints(file: Path) -> bool:
    """Whether the first line of a table has columns for the places of joints, and none of a label, which images have."""
    try:
        with text_file(file) as text:
            columns = [name.strip() for name in next(csv.reader(text), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    labelled = any(name.lower() in ("label", *NAMES["label"]) for name in columns)
    return not labelled and any(name.endswith(X) and name.removesuffix(X) + Y in columns for name in columns)


def _pose(row: dict[str, str], names: list[str], image: int, line: int) -> Pose | None:
    """The pose in a line; None where no joint is marked. Raises `ValueError` for what is no number."""
    joints = tuple(_joint(row, name) for name in names)
    if not any(joint[2] for joint in joints):
        return None
    sides = [_number(row, name) for name in BOX]
    if None in sides and any(side is not None for side in sides):
        raise ValueError(f"a box needs {', '.join(BOX)}")
    box = around(joints) if None in sides else Box(*(side for side in sides if side is not None))
    if min(box.width, box.height) <= 0:
        raise ValueError(f"the box is {box.width:g} wide and {box.height:g} high")
    return Pose(box, joints, box.width * box.height, image, line)


def _joint(row: dict[str, str], name: str) -> Joint:
    x, y, seen = _number(row, name + X), _number(row, name + Y), _number(row, name + SEEN)
    if (x is None) != (y is None):
        raise ValueError(f"of {name} one of {X} and {Y} is given")
    if x is None or y is None:
        return joint_of(0, 0, 0)
    return joint_of(x, y, 2 if seen is None else seen)


def _number(row: dict[str, str], column: str) -> float | None:
    text = row.get(column)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{brief(text)} under {column} is no number") from None
    if not abs(value) < 2**31:
        raise ValueError(f"{brief(text)} under {column} is no place")
    return value
