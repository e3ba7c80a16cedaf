"""People in a table: one line per person, with columns for the positions of joints."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from vitrail.data.items import Issue
from vitrail.data.readers.image_names import find_image, folder_of
from vitrail.data.readers.table import has_labels
from vitrail.data.tables.csv_rows import IMAGE, NOT_MARKED, SPLIT, Columns, Table, column_of, listed, plain_name, split_in
from vitrail.data.tables.json_rows import open_table
from vitrail.errors import ConfigError, DataError
from vitrail.settings import brief
from vitrail.tasks.pose.files.box_table import OF_BOX, SIDES, box_columns, box_in, marked_number
from vitrail.tasks.pose.files.coco import NO_JOINTS, Annotations, around, joint_of
from vitrail.tasks.pose.people.people import Joint, Person, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton

JOINT = re.compile(r"(.*)[_ .-]([xyv])", re.IGNORECASE)
"""Pattern of a joint's column: its name, then x, y or v for visibility."""
X, Y, SEEN = "_x", "_y", "_v"
"""Suffixes of Vitrail's names for the columns of a joint."""
SHAPE = "the columns are image, perhaps split, left, top, width, height, and NOSE_x, NOSE_y, perhaps NOSE_v for each joint"


def read_table(file: Path) -> tuple[Annotations, dict[str, list[Person]]]:
    """Read the people in a table, all and by split: ``image,left,top,width,height,nose_x,nose_y,nose_v,…``.

    Paths of images are relative to the table's folder, or to `folder_of` them. A joint without position is not annotated; a joint
    without ``_v`` is visible. Boxes may have other names, see `SIDES`; without a box the one around the joints is used.

    Raises:
        DataError: the file is not such a table. Faults of single lines are returned as issues.
    """
    table = open_table(file, columns_of)
    joints = [word.removesuffix(X) for word in table.columns if word.endswith(X)]
    try:
        found = Annotations(Skeleton.of(joints))
    except ConfigError as error:
        raise DataError(f"the columns name no joints: {error.what}", where=file, hint=SHAPE) from None
    rows = list(table.rows())
    folder = folder_of(file, list(dict.fromkeys(row.cells["image"] for row in rows if not row.problem)))
    splits: dict[str, list[Person]] = {}
    numbers: dict[str, int] = {}
    for line, cells, problem in rows:
        try:
            if problem:
                raise ValueError(problem)
            split, name = split_in(cells), cells["image"]
            if not name:
                raise ValueError("no image is named")
            pose = _pose(cells, joints, table, numbers.setdefault(name, len(numbers)), line)
        except ValueError as error:
            found.issues.append(Issue("bad-row", f"{file}:{line}", str(error)))
            continue
        image = find_image(folder, name) or folder / name
        if pose is None:
            found.left_out[NO_JOINTS] += 1
            if any(cells.get(side, "").lower() not in NOT_MARKED for side in SIDES):
                found.note_unmarked(image, line)
            continue
        person = Person(f"{name}#{line}", image, pose)
        found.people.append(person)
        splits.setdefault(split, []).append(person)
    found.read_as += table.notes(shown=("image", "split", *SIDES))
    return found, splits


def has_joints(file: Path) -> bool:
    """Return True if a table has columns for positions of joints, and no column of labels."""
    try:
        return not has_labels(open_table(file, columns_of).names)
    except DataError:
        return False


def columns_of(names: Sequence[str]) -> Columns:
    """Return the columns of images, splits, boxes and joints; raises `DataError` without images or joints."""
    find = partial(column_of, names)
    image, split = find("image", IMAGE), find("split", SPLIT)
    columns = {**({"image": image} if image else {}), **({"split": split} if split else {}), **box_columns(names)}
    spelled: dict[str, str] = {}
    for name in names:
        if name not in columns.values() and not OF_BOX.match(name) and (part := JOINT.fullmatch(name)) and part[1]:
            joint = spelled.setdefault(plain_name(part[1]), part[1])
            word = f"{joint}_{part[2].lower()}"
            if word in columns:
                raise DataError(f"two columns are called {brief(word)}", hint="name each once")
            columns[word] = name
    joints = [word[: -len(X)] for word in columns if word.endswith((X, Y))]
    if lonely := next((name for name in joints if not {name + X, name + Y} <= columns.keys()), None):
        there, lacking = (lonely + end for end in ((X, Y) if lonely + X in columns else (Y, X)))
        raise DataError(f"there is a column {brief(there)} and none {brief(lacking)}", hint=SHAPE)
    if not image or not joints:
        raise DataError(f"the table needs a column image and columns of joints; it has {listed(names)}", hint=SHAPE)
    return columns


def _pose(cells: Mapping[str, str], names: list[str], table: Table, image: int, line: int) -> Pose | None:
    """Return the pose in a line, or None if no joint is annotated; raises `ValueError` for a cell that is not a number."""
    joints = tuple(_joint(cells, name, table) for name in names)
    if not any(joint[2] for joint in joints):
        return None
    box = box_in(cells, table) or around(joints)
    if min(box.width, box.height) <= 0:
        raise ValueError(f"the box is {box.width:g} wide and {box.height:g} high")
    return Pose(box, joints, box.width * box.height, image, line)


def _joint(cells: Mapping[str, str], name: str, table: Table) -> Joint:
    x, y, seen = (marked_number(cells, name + end, table) for end in (X, Y, SEEN))
    if seen == 0 or (x is None and y is None):
        return joint_of(0, 0, 0)
    if x is None or y is None:
        raise ValueError(f"{name} needs both {X} and {Y}, and only one is given")
    return joint_of(x, y, 2 if seen is None else seen)
