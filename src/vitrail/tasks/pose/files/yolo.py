"""People in the format of YOLO's pose models: ``data.yaml``, and a text file per image with a line per person."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import upright_size
from vitrail.data.items import Issue
from vitrail.data.readers.image_names import find_image
from vitrail.data.readers.tree import files_of, images_below
from vitrail.data.tables.coco import number_of, whole
from vitrail.data.tables.csv_rows import text_lines
from vitrail.errors import ConfigError, DataError
from vitrail.files import read_text
from vitrail.plain_yaml import value_of
from vitrail.settings import brief
from vitrail.tasks.pose.files.coco import NO_JOINTS, Annotations, around, joint_of
from vitrail.tasks.pose.people.people import Joint, Person, Picture, Pose
from vitrail.tasks.pose.people.skeleton import COCO, MOST_JOINTS, Skeleton

FORMAT = "see https://docs.ultralytics.com/datasets/pose: kpt_shape: [17, 3], flip_idx, train: images/train, val: images/val"
SHAPE = "kpt_shape"
"""Key that every ``data.yaml`` of people with joints contains."""
OF_CLASS = "people of the class"
UNLABELLED = "images without a text of labels, in which nobody is"


def yolo_file(path: Path) -> Path | None:
    """Return a YAML file of pose labels: the path itself, or a file in that folder; None if there is none."""
    for file in files_of(path) if path.is_dir() else [path]:
        with suppress(OSError, UnicodeDecodeError):
            if file.suffix.lower() in (".yaml", ".yml") and f"{SHAPE}:" in read_text(file):
                return file
    return None


def read_yolo(file: Path) -> dict[str, Annotations]:
    """Read the people of each split in ``data.yaml``.

    Raises:
        DataError: the file is damaged, or names no split with images. Faults of single lines are returned as issues.
    """
    try:
        values = value_of(read_text(file), where=file)
    except ConfigError as error:
        raise DataError(f"{file.name}: {error.what}", where=error.where, hint=error.hint) from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"{file.name} is no YAML: {str(error).splitlines()[0]}", where=file, hint=FORMAT) from None
    shape = values.get(SHAPE) if isinstance(values, dict) else None
    count, numbers = [whole(side) for side in shape] if isinstance(shape, list) and len(shape) == 2 else (None, None)
    if count is None or not 0 < count <= MOST_JOINTS or numbers not in (2, 3):
        what = f"{SHAPE} must be the number of joints, at most {MOST_JOINTS:,}, and the numbers per joint, 2 or 3"
        raise DataError(f"{file.name}: {what}", where=file, hint=FORMAT)
    found = {split: Annotations(_skeleton(values, count, file)) for split in ("train", "val", "test") if values.get(split)}
    for split, annotations in found.items():
        for number, image in enumerate(_images(values, split, file, annotations.texts)):
            _read_image(image, os.path.relpath(image, file.parent), number, numbers, annotations)
        if len(classes := [note for note in annotations.notes if note.startswith(OF_CLASS)]) == 1:
            del annotations.notes[classes[0]]
    if not any(annotations.pictures or annotations.issues for annotations in found.values()):
        raise DataError(f"{file.name} names no folder with images under train, val or test", where=file, hint=FORMAT)
    return found


def _skeleton(values: dict[str, Any], count: int, file: Path) -> Skeleton:
    """Return the skeleton: joints with their names if known, and the pairs that ``flip_idx`` exchanges."""
    names, flipped = values.get("kpt_names"), values.get("flip_idx")
    names = next(iter(names.values()), None) if isinstance(names, dict) else names
    if names is None and flipped == COCO.order_mirrored:
        return COCO
    joints = names if isinstance(names, list) and len(names) == count else [f"joint_{number}" for number in range(1, count + 1)]
    order = [whole(other) for other in flipped] if isinstance(flipped, list) and len(flipped) == count else []
    pairs = [(joints[one], joints[other]) for one, other in enumerate(order) if other is not None and one < other < count]
    try:
        return Skeleton.of(joints).changed(**({"pairs": tuple(pairs)} if order else {}))
    except ConfigError as error:
        raise DataError(f"the joints of {file.name} are none: {error.what}", where=file, hint=FORMAT) from None


def _images(values: dict[str, Any], split: str, file: Path, texts: list[Path]) -> Iterator[Path]:
    """Yield the images of a split from folders and lists of images; the lists are added to ``texts``."""
    base, names = values.get("path") or "", values[split] if isinstance(values[split], list) else [values[split]]
    for key, wanted in (("path", [base]), (split, names)):
        if not all(isinstance(name, str) for name in wanted):
            what = f"{file.name}: {key} is {brief(values[key])}, expected text"
            raise DataError(what, where=file, hint="put quotes around a name of digits; " + FORMAT)
    roots = [file.parent / base, file.parent]
    for name in names:
        places = [root / spelt for root in roots for spelt in (name, name.removeprefix("../"))]
        place = next((place for place in places if os.path.exists(place)), None)
        if place is None:
            what = f"{file.name} names {brief(name)}, which does not exist"
            raise DataError(what, where=file, hint="correct the path; " + FORMAT)
        if place.is_dir():
            yield from images_below(place)
        else:
            texts.append(place)
            with text_lines(place) as lines:
                own = [text for line in lines if (text := line.strip("\ufeff\r\n")).strip()]
            yield from (find_image(place.parent, text) or place.parent / text for text in own)


def _read_image(image: Path, name: str, number: int, numbers: int, found: Annotations) -> None:
    """Read the lines of one image, whose positions are fractions of its upright width and height."""
    before, between, after = str(image.with_suffix(".txt")).rpartition(f"{os.sep}images{os.sep}")
    label = Path(f"{before}{os.sep}labels{os.sep}{after}" if between else after)
    found.pictures.append(Picture(number, image, number))
    found.texts.append(label)
    found.notes[UNLABELLED] += not os.path.isfile(label)
    try:
        lines = read_text(label).splitlines() if os.path.isfile(label) else []
        size = upright_size(image)
    except (DataError, OSError, UnicodeDecodeError) as error:
        found.issues.append(Issue("bad-image", str(image), getattr(error, "what", str(error))))
        return
    for line, cells in ((line, text.split()) for line, text in enumerate(lines, 1) if text.strip()):
        try:
            pose = _pose(cells, size, len(found.skeleton.joints), numbers, number, line)
        except ValueError as error:
            found.issues.append(Issue("bad-row", f"{label}:{line}", str(error)))
            continue
        if pose is None:
            found.left_out[NO_JOINTS] += 1
        else:
            found.notes[f"{OF_CLASS} {cells[0]}"] += 1
            found.people.append(Person(f"{name}#{line}", image, pose))


def _pose(cells: list[str], size: tuple[int, int], count: int, numbers: int, image: int, line: int) -> Pose | None:
    """Return the pose in a line, or None if no joint is annotated; raises `ValueError` for an invalid line."""
    values = [value for value in map(number_of, cells) if value is not None]
    if len(values) != len(cells) or len(values) not in (5, 5 + count * numbers):
        raise ValueError(f"expected a class, a box of 4 numbers, and {numbers} numbers for each of {count} joints")
    _, middle, centre, width, height, *rest = values
    wide, high = size
    joints = tuple(_joint(rest[at : at + numbers], wide, high) for at in range(0, len(rest), numbers))
    if not any(joint[2] for joint in joints):
        return None
    box = Box((middle - width / 2) * wide, (centre - height / 2) * high, width * wide, height * high)
    box = box if min(box.width, box.height) > 0 else around(joints)
    return Pose(box, joints, box.width * box.height, image, line)


def _joint(row: list[float], wide: int, high: int) -> Joint:
    """Return a joint in pixels; one without visibility is visible, unless it is in the corner (0, 0) or negative."""
    return joint_of(row[0] * wide, row[1] * high, row[2] if len(row) == 3 else 2 * (min(row) >= 0 and max(row) > 0))
