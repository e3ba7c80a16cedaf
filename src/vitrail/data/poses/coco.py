"""People in COCO's format for keypoints: one JSON file for all pictures of a split."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from vitrail.data.coco import is_whole, pictures_in, read_json
from vitrail.data.image_names import find_image, folder_of
from vitrail.data.items import Issue
from vitrail.data.poses.people import EMPTY_BOX, Box, Joint, Person, Picture, Pose
from vitrail.data.poses.skeleton import Skeleton
from vitrail.errors import ConfigError, DataError
from vitrail.settings import brief

FORMAT = "see https://cocodataset.org/#format-data, keypoint detection"
CROWD, NO_JOINTS, OTHERS = "annotations of crowds", "people without marked joints", "annotations of other categories"
"""Why annotations are left out."""
UNMARKED = "no-joints"
"""The kind of a notice: a box of somebody without marked joints."""
LARGEST = 2**63
"""Numbers of pictures are smaller: they are kept in 64 bits."""
MOST = 2.0**31
"""Pixels: nothing is so far away, and no number that is none is less."""


@dataclass
class Annotations:
    """What a file of annotations holds."""

    skeleton: Skeleton
    people: list[Person] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    """All in the file; a table has none of its own."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What it says of the width and height of each picture, by its path."""
    issues: list[Issue] = field(default_factory=list)
    warnings: list[Issue] = field(default_factory=list)
    notices: list[Issue] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    """Lines on how a table was read."""

    def note_unmarked(self, image: Path, number: int) -> None:
        """Note a box in a picture, of which the number of the annotation or the line is known, that has no marked joint."""
        self.notices.append(Issue(UNMARKED, f"{image}#{number}", "there is a box, and no joint is marked: it is left out"))


def read_coco(file: Path) -> Annotations:
    """The people in a file of COCO's; pictures lie beside it, in ``images``, or in a folder of the split's name.

    Raises:
        DataError: no such file, or nothing of the kind. What is wrong with single annotations is among the issues.
    """
    values, lists = read_json(file), ("images", "annotations", "categories")
    if not isinstance(values, dict) or not all(isinstance(values.get(name), list) for name in lists):
        raise DataError(f"{file.name} has no images, annotations and categories", where=file, hint=FORMAT)
    number, skeleton = _skeleton(file, values["categories"])
    found = Annotations(skeleton)
    pictures = pictures_in(values["images"], found.issues, file)
    for large in (number for number in pictures if not -LARGEST <= number < LARGEST):
        what = f"the id of the image {pictures[large]['file_name']}, {brief(large)}, has more than 64 bits"
        found.issues.append(Issue("bad-image", str(file), what))
    names = {key: picture["file_name"] for key, picture in pictures.items()}
    folder = folder_of(file, list(names.values()))
    paths = {key: find_image(folder, name) or folder / name for key, name in names.items()}
    for key, picture in pictures.items():
        if _is_size(size := (picture.get("width"), picture.get("height"))):
            found.sizes[str(paths[key])] = size
    ignored: dict[int, list[dict[str, Any]]] = {}
    for annotation in _of_category(values["annotations"], number, found, file):
        person, reason = (None, CROWD) if annotation.get("iscrowd") else _person(annotation, pictures, paths, found, file)
        if person:
            found.people.append(person)
        elif reason:
            found.left_out[reason] += 1
            if reason == NO_JOINTS and annotation.get("bbox") is not None:
                found.note_unmarked(paths[annotation["image_id"]], annotation["id"])
            if is_whole(image := annotation.get("image_id")):
                ignored.setdefault(image, []).extend(_ignored(annotation, found.skeleton))
    found.pictures = [Picture(number, path, number, tuple(ignored.get(number, ()))) for number, path in paths.items()]
    return found


def _skeleton(file: Path, categories: list[Any]) -> tuple[int, Skeleton]:
    """The category that has joints, and those; raises `DataError` where there is none, or more than one."""
    found = [one for one in categories if isinstance(one, dict) and isinstance(one.get("keypoints"), list) and one["keypoints"]]
    if len(found) != 1:
        names = ", ".join(brief(one.get("name")) for one in found[:8])
        what = f"several categories have keypoints: {names}" if found else "no category has keypoints"
        raise DataError(what, where=file, hint="give a file with one kind of body")
    number, joints, limbs = found[0].get("id"), found[0]["keypoints"], found[0].get("skeleton") or []
    if not is_whole(number):
        raise DataError(f"the category with keypoints has the id {brief(number)}", where=file, hint=FORMAT)
    if not isinstance(limbs, list) or not all(map(_is_limb, limbs)):
        raise DataError("the category's skeleton is no list of pairs of numbers", where=file, hint=FORMAT)
    if strange := [end for limb in limbs for end in limb if not 0 < end <= len(joints)]:
        what = f"the category's skeleton names joint {brief(strange[0])} of {len(joints)}"
        raise DataError(what, where=file, hint=f"joints are numbered from 1; {FORMAT}")
    try:
        return number, Skeleton.of(joints, ([end - 1 for end in limb] for limb in limbs))
    except ConfigError as error:
        raise DataError(f"the category's keypoints are no joints: {error.what}", where=file, hint=error.hint) from None


def _is_limb(ends: Any) -> bool:
    return isinstance(ends, list) and len(ends) == 2 and all(map(is_whole, ends))


def _of_category(annotations: list[Any], number: int, found: Annotations, file: Path) -> Iterator[Mapping[str, Any]]:
    """The annotations of one category; one that names no category counts as one of them."""
    seen: set[int] = set()
    for place, annotation in enumerate(annotations):
        if not isinstance(annotation, dict) or not is_whole(annotation.get("id")) or annotation["id"] in seen:
            found.issues.append(Issue("bad-annotation", str(file), f"annotation {place + 1} in the list has no id of its own"))
            continue
        seen.add(annotation["id"])
        if annotation.get("category_id", number) == number:
            yield annotation
        else:
            found.left_out[OTHERS] += 1


def _person(
    annotation: Mapping[str, Any],
    pictures: Mapping[int, Mapping[str, Any]],
    paths: Mapping[int, Path],
    found: Annotations,
    file: Path,
) -> tuple[Person | None, str]:
    """The person of an annotation, or why there is none; nothing of both, with an issue, where something is wrong."""
    number, image = annotation["id"], annotation.get("image_id")
    try:
        if not is_whole(image) or image not in pictures:
            raise ValueError(f"there is no image {brief(image)}")
        joints = _joints(annotation.get("keypoints"), found.skeleton.joints)
        if not any(joint[2] for joint in joints):
            return None, NO_JOINTS
        box = _box(annotation.get("bbox"))
    except ValueError as error:
        where = f" in {pictures[image]['file_name']}" if is_whole(image) and image in pictures else ""
        found.issues.append(Issue("bad-annotation", str(file), f"annotation {number}{where}: {error}"))
        return None, ""
    picture = pictures[image]
    if box is not None and min(box.width, box.height) <= 0:
        found.warnings.append(Issue(EMPTY_BOX, picture["file_name"], f"the box of annotation {number} is empty"))
        box = None
    box = box or around(joints)
    area = annotation.get("area")
    covered = float(area) if _is_number(area) and area > 0 else box.width * box.height
    pose = Pose(box, joints, covered, image, number)
    return Person(f"{picture['file_name']}#{number}", paths[image], pose), ""


def _ignored(annotation: Mapping[str, Any], skeleton: Skeleton) -> list[dict[str, Any]]:
    """An annotation that is left out, as COCO's evaluation reads it; none where it tells no place."""
    try:
        box = _box(annotation.get("bbox"))
        joints = _joints(annotation["keypoints"], skeleton.joints) if "keypoints" in annotation else ()
    except ValueError:
        return []
    if box is None:
        return []
    area, marked = annotation.get("area"), sum(joint[2] > 0 for joint in joints)
    return [
        {
            "bbox": list(box),
            "area": float(area) if _is_number(area) else box.width * box.height,
            "iscrowd": int(bool(annotation.get("iscrowd"))),
            **({"num_keypoints": marked, "keypoints": [value for joint in joints for value in joint]} if marked else {}),
        }
    ]


def _joints(flat: Any, names: Sequence[str]) -> tuple[Joint, ...]:
    count = len(names)
    if not isinstance(flat, list) or len(flat) != 3 * count:
        raise ValueError(f"its keypoints are not 3 numbers for each of {count} joints")
    rows = [flat[at : at + 3] for at in range(0, 3 * count, 3)]
    for name, row in zip(names, rows, strict=True):
        if not _are_numbers(row):
            raise ValueError(f"its joint {name!r} is {brief(row)}, and not x, y and visibility")
    return tuple(joint_of(*row) for row in rows)


def _box(sides: Any) -> Box | None:
    if sides is None:
        return None
    if not _are_numbers(sides) or len(sides) != 4 or min(sides[2:]) < 0:
        raise ValueError(f"its bbox {brief(sides)} is not left, top, width and height")
    left, top, width, height = sides
    return Box(left, top, width, height)


def joint_of(x: float, y: float, visibility: float) -> Joint:
    """A joint, whose place means nothing where it is not marked."""
    return (float(x), float(y), min(2, math.ceil(visibility))) if visibility > 0 else (0.0, 0.0, 0)


def around(joints: tuple[Joint, ...]) -> Box:
    """The smallest box with all marked joints in it, a pixel wide and high at least."""
    xs, ys = zip(*((x, y) for x, y, visibility in joints if visibility), strict=True)
    return Box(min(xs), min(ys), max(1.0, max(xs) - min(xs)), max(1.0, max(ys) - min(ys)))


def _are_numbers(values: Any) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(map(_is_number, values))


def _is_size(sides: tuple[Any, Any]) -> TypeGuard[tuple[int, int]]:
    return all(is_whole(side) and 0 < side < MOST for side in sides)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST
