"""Opening of people's annotations: from the ``--data`` argument of pose estimation to named splits."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import upright_size
from vitrail.data.items import Issue
from vitrail.data.readers.image_names import MissingImages
from vitrail.data.readers.split_files import split_files
from vitrail.data.readers.tree import files_of, unlisted_notes
from vitrail.data.splits import SHARES, Assignment, named_apart
from vitrail.data.tables.csv_rows import NAMED_ENDINGS
from vitrail.errors import DataError
from vitrail.files import path_of
from vitrail.tasks.pose.files.coco import NO_JOINTS, UNSEEN, Annotations, around, read_coco
from vitrail.tasks.pose.files.foreign import is_deeplabcut, refuse_deeplabcut
from vitrail.tasks.pose.files.suspicions import suspicions
from vitrail.tasks.pose.files.table import has_joints, read_table
from vitrail.tasks.pose.files.yolo import read_yolo, yolo_file
from vitrail.tasks.pose.people.boxes import with_boxes
from vitrail.tasks.pose.people.people import PeopleContents, PeopleData, Person, Picture, with_splits
from vitrail.tasks.pose.people.skeleton import OF_DATA, Boxes, Skeleton

HINT = "give keypoints.json in COCO's format, a folder with train.json and perhaps val.json, or a table; see docs/pose.md"


def open_people(
    source: str | Path,
    *,
    skeleton: Skeleton | None = None,
    like: Skeleton | None = None,
    boxes: Boxes = "annotations",
    split_seed: int = 0,
    shares: Mapping[str, float] = SHARES,
    assignment: Assignment | None = None,
) -> PeopleData:
    """Open people with their splits.

    Args:
        source: ``keypoints.json`` in COCO's format; a folder with one such file per split, see `split_files`; a table with
            the columns ``image,nose_x,nose_y,…``; or YOLO's ``data.yaml`` or its folder.
        skeleton: limbs, pairs and sigmas to use instead of the data's; its joints must be the data's.
        like: a model's skeleton, which selects among categories with different joints; by default ``skeleton`` does.
        boxes: source of the boxes.
        split_seed: seed for splitting data without splits, image by image.
        shares: fractions of test and validation in such data; {"test": 0.2, "val": 0.1} by default.
        assignment: an earlier split to repeat.

    Raises:
        DataError: the data does not exist, or has faults.
    """
    contents = read_people(source, like or skeleton)
    if contents.issues:
        first, *others = contents.issues
        what = f"{first.what} (and {len(others):,} more)" if others else first.what
        hint = f"vitrail data check {shlex.quote(contents.source)} --task pose lists all faults"
        raise DataError(what, where=first.path, hint=hint)
    contents = with_skeleton(contents, skeleton)
    notes: list[str] = []
    if boxes not in OF_DATA:
        contents, notes = with_boxes(contents, path_of(boxes))
    elif boxes != "annotations":
        box_of = _around_picture() if boxes == "image" else lambda person: around(person.target.joints)
        splits = {split: [person.in_box(box_of(person)) for person in people] for split, people in contents.splits.items()}
        contents = replace(contents, splits=splits)
    found = with_splits(contents, split_seed, assignment, shares)
    return replace(found, notes=(*found.notes, *notes))


def read_people(source: str | Path, wanted: Skeleton | None = None) -> PeopleContents:
    """Read the contents of a data set of people, including all faults.

    Args:
        source: as for `open_people`.
        wanted: selects among categories with different joints.

    Raises:
        DataError: the data does not exist, or has no annotated joints.
    """
    path = require_there(source)
    if yolo := yolo_file(path):
        read_by_split = read_yolo(yolo)
        contents = _joined(str(path), read_by_split, {split: read.people for split, read in read_by_split.items()})
        return _with_unlisted(contents, path, [yolo], read_by_split) if path.is_dir() else contents
    if path.is_dir():
        files = _files(path)
        found = {split: read_coco(file, wanted) for split, file in files.items()}
        contents = _joined(str(path), found, {split: read.people for split, read in found.items()})
        return _with_unlisted(contents, path, files.values(), found)
    if path.suffix.lower() == ".json":
        read = read_coco(path, wanted)
        return _joined(str(path), {"all": read}, {"all": read.people})
    read, splits = read_table(path)
    return _joined(str(path), {"all": read}, splits)


def _with_unlisted(
    contents: PeopleContents, folder: Path, files: Iterable[Path], found: Mapping[str, Annotations]
) -> PeopleContents:
    """Add a note with the number of files in the folder that are not part of the data."""
    listed = [*files, *(path for read in found.values() for path in (*read.texts, *(one.path for one in read.pictures)))]
    return replace(contents, notes=[*contents.notes, *unlisted_notes(folder, listed)])


def require_there(source: str | Path) -> Path:
    """Return the path of data; raises `DataError` if it does not exist."""
    path = Path(os.path.abspath(path_of(source)))
    if not os.path.exists(path):
        raise DataError(f"no data at {str(source)!r}", where="--data", hint=HINT)
    if yolo_file(path):
        return path
    if path.is_dir():
        _files(path)
    elif path.suffix.lower() not in (".json", *NAMED_ENDINGS):
        raise DataError(f"{path.name} holds no people", where="--data", hint=HINT)
    else:
        refuse_deeplabcut(path)
    return path


def tells_people(source: str | Path) -> bool:
    """Return True if data must be people: JSON, a table with columns of joints, or YOLO's files with ``kpt_shape``."""
    path = path_of(source)
    if not os.path.isfile(path):
        return os.path.isdir(path) and yolo_file(path) is not None
    suffix = path.suffix.lower()
    return suffix == ".json" or (suffix in NAMED_ENDINGS and (is_deeplabcut(path) or has_joints(path)))


def _files(folder: Path) -> dict[str, Path]:
    labels = any(file.suffix == ".txt" for place in (folder, folder / "labels") if place.is_dir() for file in files_of(place))
    hint = "labels of YOLO's pose models are read by their data.yaml with kpt_shape, beside images and labels" if labels else HINT
    return split_files(folder, "keypoint", (".json",), hint=hint)


def _joined(source: str, found: dict[str, Annotations], splits: dict[str, list[Person]]) -> PeopleContents:
    first, *others = found.values()
    for read in others:
        if read.skeleton.joints != first.skeleton.joints:
            raise DataError("the splits have different joints", where=source, hint="give files of one kind of body")
    issues = [issue for read in found.values() for issue in read.issues]
    names = {str(person.image): person.name.rpartition("#")[0] for people in splits.values() for person in people}
    missing = MissingImages(Path(source) if os.path.isdir(source) else Path(source).parent)
    gone = {image: name for image, name in sorted(names.items()) if not os.path.isfile(image)}
    if len(gone) == len(names) and (prefix := missing.prefix([*gone.values()])):
        issues.append(Issue("missing", source, prefix))
    else:
        issues += [Issue("missing", image, f"there is no such image{missing.near(name)}") for image, name in gone.items()]
    left_out, notes = (sum(of, Counter[str]()) for of in zip(*((one.left_out, one.notes) for one in found.values()), strict=True))
    if not any(splits.values()) and not issues:
        raise _nobody(source, left_out)
    warnings = [warning for read in found.values() for warning in read.warnings]
    notices = [notice for read in found.values() for notice in read.notices]
    sizes = {image: size for read in found.values() for image, size in read.sizes.items()}
    named = named_apart(splits, lambda person, name: replace(person, name=name))
    pictures = {split: read.pictures for split, read in found.items()}
    _number(named, pictures)
    lines = [note for read in found.values() for note in read.read_as]
    lines += [f"{what}: {count:,}" for what, count in notes.items() if count]
    lines += suspicions(named, first.skeleton)
    return PeopleContents(
        source, first.skeleton.complete, named, pictures, issues, warnings, notices, dict(left_out), sizes, lines
    )


def _nobody(source: str, left_out: Counter[str]) -> DataError:
    why = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    unmarked = not left_out.keys().isdisjoint((NO_JOINTS, UNSEEN))
    hint = "an annotated joint has a position, and visibility 1 if hidden or 2 if visible" if unmarked else HINT
    return DataError("nobody with marked joints is left" + (f": {why}" if why else ""), where=source, hint=hint)


def _number(splits: dict[str, list[Person]], pictures: dict[str, list[Picture]]) -> None:
    """Renumber a file's images, if an earlier file uses one of their ids for another image."""
    paths: dict[int, Path] = {}
    for split, own in pictures.items():
        if any(paths.get(one.number, one.path) != one.path for one in own):
            more = max(paths) + 1 - min(one.number for one in own)
            own = pictures[split] = [one._replace(number=one.number + more) for one in own]
            splits[split] = [
                replace(person, target=person.target._replace(image=person.target.image + more), own_number=person.target.image)
                for person in splits[split]
            ]
        paths |= {one.number: one.path for one in own}


def with_skeleton(contents: PeopleContents, skeleton: Skeleton | None) -> PeopleContents:
    """Replace the skeleton if one is given; raises `DataError` if its joints differ from the data's."""
    if skeleton is None:
        return contents
    if skeleton.joints != contents.skeleton.joints:
        what = f"the data has the joints {', '.join(contents.skeleton.joints)}, the skeleton {', '.join(skeleton.joints)}"
        raise DataError(what, where="task.skeleton", hint="name the data's joints, in their order")
    return replace(contents, skeleton=skeleton.complete)


def _around_picture() -> Callable[[Person], Box]:
    """Return a function from a person to the full image as a box; for an unreadable image it returns the person's own box."""
    known: dict[str, Box] = {}

    def box_of(person: Person) -> Box:
        name = str(person.image)
        if name not in known:
            with suppress(DataError):
                known[name] = Box.of_picture(upright_size(person.image))
        return known.get(name, person.target.box)

    return box_of
