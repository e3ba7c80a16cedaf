"""People in COCO's keypoint format: one JSON file for all images of a split."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vitrail.data.images.box_preparation import Box
from vitrail.data.items import Issue
from vitrail.data.readers.image_names import find_image, folder_of
from vitrail.data.tables.coco import MOST, is_crowd, number_of, pictures_in, read_json, whole
from vitrail.errors import DataError
from vitrail.settings import brief
from vitrail.tasks.pose.files.foreign import refuse_other_json
from vitrail.tasks.pose.people.bodies import FORMAT, Body, body_in
from vitrail.tasks.pose.people.people import EMPTY_BOX, Joint, Person, Picture, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton

CROWD, NO_JOINTS, OTHERS = "annotations of crowds", "people without marked joints", "annotations of other categories"
OTHER_COUNT = "people with more or fewer keypoints than the skeleton has"
UNSEEN = "people whose joints all have the visibility 0, though they have places"
"""Reasons why annotations are skipped."""
NO_AREA = "areas of people that are no number above 0, for which their boxes' are taken"
NO_PLACE = "joints that have a visibility and no place, taken as not marked"
MOST_KINDS = 8
"""Maximum number of skipped categories that are counted separately."""
UNMARKED = "no-joints"
"""Kind of notice for a box without annotated joints."""
LARGEST = 2**63
"""Bound of image ids, which are stored in 64 bits."""
NOWHERE = (None, "", "nan", "na", "n/a", "null", "none")
"""Values, in lower case, for the position of a joint that has none."""


@dataclass
class Annotations:
    """The content of a file of annotations."""

    skeleton: Skeleton
    people: list[Person] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    """All images in the file; a table lists none."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Width and height of each image in the annotations, by path."""
    issues: list[Issue] = field(default_factory=list)
    warnings: list[Issue] = field(default_factory=list)
    notices: list[Issue] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    """Counts of values that are interpreted differently from what the file says, by description."""
    read_as: list[str] = field(default_factory=list)
    """Notes on how a table was read."""
    texts: list[Path] = field(default_factory=list)
    """YOLO's files next to the images: lists of images, and labels."""

    def note_unmarked(self, image: Path, number: int) -> None:
        """Add a notice about a box without annotated joints, with the number of its annotation or line."""
        self.notices.append(Issue(UNMARKED, f"{image}#{number}", "there is a box, and no joint is marked: it is left out"))


class _File(NamedTuple):
    """The file being read, with its categories and images."""

    path: Path
    body: Body
    pictures: dict[int, Mapping[str, Any]]
    paths: dict[int, Path]

    def picture_of(self, annotation: Mapping[str, Any]) -> int | None:
        """Return the id of an annotation's image, or None if it is missing or unknown."""
        number = whole(annotation.get("image_id"))
        return number if number in self.pictures else None


def read_coco(file: Path, wanted: Skeleton | None = None) -> Annotations:
    """Read the people in a COCO file; images lie next to it, in ``images``, or in a folder named like the split.

    Args:
        file: JSON file.
        wanted: selects among categories with different joints; see `body_in`.

    Raises:
        DataError: the file is missing or in another format. Faults of single annotations are returned as issues.
    """
    values, lists = read_json(file), ("images", "annotations", "categories")
    if not isinstance(values, dict) or not all(isinstance(values.get(name), list) for name in lists):
        refuse_other_json(file, values)
        raise DataError(f"{file.name} has no images, annotations and categories", where=file, hint=FORMAT)
    notes = Counter[str]()
    body = body_in(file, values, wanted, notes)
    found = Annotations(body.skeleton, notes=notes)
    pictures = pictures_in(values["images"], found.issues, file)
    for large in (number for number in pictures if not -LARGEST <= number < LARGEST):
        what = f"the id of the image {pictures[large]['file_name']}, {brief(large)}, has more than 64 bits"
        found.issues.append(Issue("bad-image", str(file), what))
    names = {number: picture["file_name"] for number, picture in pictures.items()}
    folder = folder_of(file, list(names.values()))
    paths = {number: find_image(folder, name) or folder / name for number, name in names.items()}
    for number, picture in pictures.items():
        if size := _size(picture.get("width"), picture.get("height")):
            found.sizes[str(paths[number])] = size
    ignored = _read_annotations(values["annotations"], _File(file, body, pictures, paths), found)
    found.pictures = [Picture(number, path, number, tuple(ignored.get(number, ()))) for number, path in paths.items()]
    return found


def _read_annotations(annotations: list[Any], file: _File, found: Annotations) -> dict[int, list[dict[str, Any]]]:
    """Read the people and count skipped annotations; return the annotations that an evaluation ignores, by image."""
    ignored: dict[int, list[dict[str, Any]]] = {}
    for number, annotation in _of_body(annotations, file, found):
        try:
            crowd = is_crowd(annotation)
            person, reason = (None, CROWD) if crowd else _person(number, annotation, file, found)
        except ValueError as error:
            image = file.picture_of(annotation)
            where = "" if image is None else f" in {file.pictures[image]['file_name']}"
            found.issues.append(Issue("bad-annotation", str(file.path), f"annotation {number}{where}: {error}"))
            continue
        if person:
            found.people.append(person)
            continue
        found.left_out[reason] += 1
        if (image := file.picture_of(annotation)) is not None:
            if not crowd and reason != OTHER_COUNT and annotation.get("bbox") is not None:
                found.note_unmarked(file.paths[image], number)
            ignored.setdefault(image, []).extend(_ignored(annotation, found.skeleton, crowd=crowd))
    return ignored


def _of_body(annotations: list[Any], file: _File, found: Annotations) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the annotations of the selected categories with their ids; one without a category counts as selected."""
    seen: set[int] = set()
    of, others = Counter[int](), Counter[int]()
    categories = file.body.categories
    for place, annotation in enumerate(annotations):
        number = whole(annotation.get("id")) if isinstance(annotation, dict) else None
        if number is None or number in seen:
            what = f"annotation {place + 1} in the list has no id of its own"
            found.issues.append(Issue("bad-annotation", str(file.path), what))
            continue
        seen.add(number)
        named = annotation.get("category_id")
        category = next(iter(categories)) if named is None else whole(named)
        if category is None:
            what = f"annotation {number}: its category_id is {brief(named)}, and no whole number"
            found.issues.append(Issue("bad-annotation", str(file.path), what))
        elif category in categories:
            of[category] += 1
            yield number, annotation
        else:
            others[category] += 1
    if len(categories) > 1:
        found.notes.update({f"people of the category {categories[number]}": count for number, count in of.items()})
    for place, (category, count) in enumerate(others.most_common()):
        found.left_out[f"annotations of category_id {brief(category)}" if place < MOST_KINDS else OTHERS] += count


def _person(number: int, annotation: Mapping[str, Any], file: _File, found: Annotations) -> tuple[Person | None, str]:
    """Return the person in an annotation, or None and the reason; raises `ValueError` for an invalid annotation."""
    image = file.picture_of(annotation)
    if image is None:
        raise ValueError(f"there is no image {brief(annotation.get('image_id'))}")
    flat, name = annotation.get("keypoints"), file.pictures[image]["file_name"]
    if isinstance(flat, list) and len(flat) != 3 * len(found.skeleton.joints):
        what = f"annotation {number} has {len(flat)} numbers for {len(found.skeleton.joints)} joints, and not 3 for each"
        found.warnings.append(Issue("bad-annotation", name, what))
        return None, OTHER_COUNT
    joints = _joints(flat, found.skeleton.joints, found.notes)
    if not any(joint[2] for joint in joints):
        places = (value for place, value in enumerate(annotation["keypoints"]) if place % 3 < 2)
        return None, UNSEEN if any(map(number_of, places)) else NO_JOINTS
    box = _box(annotation.get("bbox"))
    if box is not None and min(box.width, box.height) <= 0:
        found.warnings.append(Issue(EMPTY_BOX, name, f"the box of annotation {number} is empty"))
        box = None
    box = box or around(joints)
    area = number_of(annotation.get("area"))
    if annotation.get("area") is not None and not (area and area > 0):
        found.notes[NO_AREA] += 1
    covered = float(area) if area and area > 0 else box.width * box.height
    return Person(f"{name}#{number}", file.paths[image], Pose(box, joints, covered, image, number)), ""


def _ignored(annotation: Mapping[str, Any], skeleton: Skeleton, *, crowd: bool) -> list[dict[str, Any]]:
    """Return a skipped annotation in the form that COCO's evaluation ignores; an empty list if it has no box."""
    try:
        box = _box(annotation.get("bbox"))
        joints = _joints(annotation["keypoints"], skeleton.joints, Counter()) if "keypoints" in annotation else ()
    except ValueError:
        return []
    if box is None:
        return []
    area, marked = number_of(annotation.get("area")), sum(joint[2] > 0 for joint in joints)
    return [
        {
            "bbox": list(box),
            "area": box.width * box.height if area is None else float(area),
            "iscrowd": int(crowd),
            **({"num_keypoints": marked, "keypoints": [value for joint in joints for value in joint]} if marked else {}),
        }
    ]


def _joints(flat: Any, names: Sequence[str], notes: Counter[str]) -> tuple[Joint, ...]:
    count = len(names)
    if not isinstance(flat, list) or len(flat) != 3 * count:
        raise ValueError(f"its keypoints are not 3 numbers for each of {count} joints")
    return tuple(_joint(name, flat[3 * at : 3 * at + 3], notes) for at, name in enumerate(names))


def _joint(name: str, row: list[Any], notes: Counter[str]) -> Joint:
    """Read one joint; the position of a joint that is not annotated is ignored."""
    x, y, visibility = map(number_of, row)
    nowhere = x is None and y is None and _is_nowhere(row[0]) and _is_nowhere(row[1])
    if nowhere and _is_nowhere(row[2]):
        visibility = 0
    if visibility is not None and (visibility <= 0 or nowhere):
        notes[NO_PLACE] += visibility > 0
        return joint_of(0, 0, 0)
    if x is None or y is None or visibility is None:
        raise ValueError(f"its joint {name!r} is {brief(row)}, and not x, y and visibility")
    return joint_of(x, y, visibility)


def _is_nowhere(value: Any) -> bool:
    return value != value or (value.strip().lower() if isinstance(value, str) else value) in NOWHERE


def _box(sides: Any) -> Box | None:
    """Read a box, None if it is missing, and empty if all its numbers are; raises `ValueError` for others."""
    if sides is None:
        return None
    if isinstance(sides, list) and all(map(_is_nowhere, sides)):
        return Box(0, 0, 0, 0)
    values = [value for side in sides if (value := number_of(side)) is not None] if isinstance(sides, list) else []
    if len(values) != 4 or len(sides) != 4 or min(values[2:]) < 0:
        raise ValueError(f"its bbox {brief(sides)} is not left, top, width and height")
    return Box(*values)


def joint_of(x: float, y: float, visibility: float) -> Joint:
    """Return a joint; one that is not annotated is at (0, 0)."""
    return (float(x), float(y), min(2, math.ceil(visibility))) if visibility > 0 else (0.0, 0.0, 0)


def around(joints: tuple[Joint, ...]) -> Box:
    """Return the smallest box around all annotated joints, at least a pixel wide and high."""
    xs, ys = zip(*((x, y) for x, y, visibility in joints if visibility), strict=True)
    return Box(min(xs), min(ys), max(1.0, max(xs) - min(xs)), max(1.0, max(ys) - min(ys)))


def _size(width: Any, height: Any) -> tuple[int, int] | None:
    sides = [side for side in (whole(width), whole(height)) if side is not None and 0 < side < MOST]
    return (sides[0], sides[1]) if len(sides) == 2 else None
