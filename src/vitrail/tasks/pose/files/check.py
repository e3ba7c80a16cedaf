"""A check of people in pictures: faults, suspicions, and a summary."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from vitrail.data.checks.duplicates import same_files
from vitrail.data.checks.found import Found, by
from vitrail.data.images.decode import decode
from vitrail.data.images.plan import Extent
from vitrail.data.items import Issue
from vitrail.errors import DataError
from vitrail.tasks.pose.files.sources import read_people, with_skeleton
from vitrail.tasks.pose.people.people import PeopleContents, Person
from vitrail.tasks.pose.people.sides import judge_sides
from vitrail.tasks.pose.people.skeleton import Skeleton

FEW = 3
"""Fewer marked joints of a person are noted; as many are compared to find two annotations of one person."""
SLACK = 1.0
"""Pixels by which a joint may lie outside of the picture: some tools begin to count at 1."""
RIM = 0.125
"""Rim around a box in which joints are seen, as a share of the longer side."""
FAR, LEAST_INSIDE = 0.5, 0.5
"""Largest distance of a joint from its box, as a share of the longer side, and least share of a box in its picture."""
SAME = 0.02
"""Largest mean distance of the joints of two annotations of one person, as a share of the box's longer side."""
MOST_COMPARED = 300
"""Most people in a picture who are compared with one another."""


@dataclass(frozen=True)
class PeopleCheck(Found):
    """The result of a check of people.

    Kinds of issues: ``missing`` and ``unreadable`` (pictures), ``size`` (another than the data says), ``no-joint-in-box``,
    ``repeated`` (two annotations of one person), ``leak`` (the same picture in several splits), ``sides`` (left and right
    exchanged, by people's eyes), ``empty-box``, ``bad-image``, ``bad-annotation``, ``bad-row``; of notices: ``no-joints`` (a
    box of somebody without marked joints, who is left out), ``joint-outside`` and ``box-outside`` (of the picture),
    ``far-joint`` (from its box), ``few-joints``, ``sides`` (by shoulders and hips, or of a pair).
    """

    contents: PeopleContents
    issues: list[Issue]
    notices: list[Issue]
    not_in_file: list[str]
    """Lines on checks for which there is too little data."""

    @property
    def people(self) -> list[Person]:
        return _people(self.contents)

    @property
    def splits(self) -> dict[str, dict[str, int]]:
        """Return the number of people and pictures of each split; "all" is the split of data without any."""
        return {
            split: {"people": len(people), "images": len({str(person.image) for person in people})}
            for split, people in self.contents.splits.items()
        }

    @property
    def marked(self) -> dict[str, float]:
        """Return the share of people of whom each joint is marked."""
        joints = self.contents.skeleton.joints
        marks = np.array([person.joints[:, 2] > 0 for person in self.people]).reshape(-1, len(joints))
        return dict(zip(joints, (marks.sum(axis=0) / max(1, len(marks))).tolist(), strict=True))

    @property
    def boxes(self) -> dict[str, list[float]]:
        """Return the smallest, median and largest width and height of people's boxes, each for itself."""
        sides = list(zip(*(person.target.box[2:] for person in self.people), strict=True))
        return {name: [of(side) for side in sides] for name, of in (("min", min), ("median", median), ("max", max)) if sides}

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.contents.source,
            "people": len(self.people),
            "images": len({str(person.image) for person in self.people}),
            "splits": self.splits,
            "marked": self.marked,
            "boxes": self.boxes,
            "left_out": self.contents.left_out,
            "notes": self.contents.notes,
            "not_in_file": self.not_in_file,
            **self.listed,
        }

    def lines(self) -> Iterator[str]:
        yield f"source   {self.contents.source}"
        for split, count in self.splits.items():
            yield f"{split:<7}  {count['people']:,} people in {count['images']:,} images"
        for reason, number in self.contents.left_out.items():
            yield f"note     left out: {number:,} {reason}"
        for line in (*self.contents.notes, *self.not_in_file):
            yield f"note     {line}"
        if self.boxes:
            yield "boxes    width×height " + ", ".join(f"{name} {by(sides)}" for name, sides in self.boxes.items())
            yield ""
            width = max(map(len, self.marked))
            for joint, share in self.marked.items():
                yield f"{joint:<{width}}  marked {share:>4.0%}"


def check_people(
    data: str | Path,
    skeleton: Skeleton | None = None,
    *,
    on_start: Callable[[int], None] | None = None,
    on_image: Callable[[int], None] | None = None,
) -> PeopleCheck:
    """Read people, every picture once, and what is marked in it.

    Args:
        data, skeleton: as for `open_people`.
        on_start: called with the number of pictures.
        on_image: called with 1 after every picture.

    Raises:
        DataError: nothing there, data that cannot be read at all, or a skeleton of other joints.
    """
    contents = with_skeleton(read_people(data, skeleton), skeleton)
    pictures: dict[str, list[Person]] = {}
    for person in _people(contents):
        pictures.setdefault(str(person.image), []).append(person)
    missing = {issue.path for issue in contents.issues if issue.kind == "missing"}
    if on_start:
        on_start(len(pictures))
    issues: list[Issue] = [*contents.issues, *contents.warnings]
    notices = [*contents.notices]
    for picture, people in pictures.items():
        size = None
        if picture not in missing:
            try:
                size = decode(Path(picture)).size
                if (expected := contents.sizes.get(picture, size)) != size:
                    issues.append(_other_size(picture, size, expected))
            except DataError as error:
                issues.append(Issue("unreadable", picture, error.what))
        for person in people:
            beyond = _beyond(person)
            if beyond.min() > RIM * max(person.target.box[2:]):
                issues.append(Issue("no-joint-in-box", _at(person), "no joint that is marked lies in the box"))
            notices += _suspicious(person, beyond, contents.skeleton.joints, size)
        issues += _repeated(people)
        if on_image:
            on_image(1)
    issues += _leaks(contents, missing)
    sides = judge_sides(_people(contents), contents.skeleton, contents.source)
    return PeopleCheck(contents, issues + sides.issues, notices + sides.notices, sides.not_in_file)


def _people(contents: PeopleContents) -> list[Person]:
    return [person for people in contents.splits.values() for person in people]


def _at(person: Person) -> str:
    return f"{person.image!s}#{person.target.number}"


def _other_size(picture: str, size: Extent, expected: Extent) -> Issue:
    what = f"the picture is {size[0]}×{size[1]}, and {expected[0]}×{expected[1]} by the annotations"
    turned = " when it is turned as its EXIF orientation says; joints are places in the upright picture"
    return Issue("size", picture, what + (turned if expected == size[::-1] else ""))


def _beyond(person: Person) -> np.ndarray:
    """Compute how far each marked joint is outside of its box, along the side where it is furthest, in pixels: (M,)."""
    box, joints = person.target.box, person.joints
    places = joints[joints[:, 2] > 0, :2]
    low = np.array([box.left, box.top])
    return np.asarray(np.maximum(low - places, places - low - (box.width, box.height)).max(axis=1))


def _suspicious(person: Person, beyond: np.ndarray, names: tuple[str, ...], size: Extent | None) -> Iterator[Issue]:
    """Yield notices of few joints, joints far from their box, and joints and boxes outside of the picture, if it is known."""
    box, joints = person.target.box, person.joints
    marked = np.flatnonzero(joints[:, 2] > 0)
    if len(marked) < FEW:
        yield Issue("few-joints", _at(person), f"marked of {len(names)} joints: {', '.join(names[joint] for joint in marked)}")
    far = marked[beyond > FAR * max(box.width, box.height)]
    if len(far) and len(far) < len(marked):
        yield Issue("far-joint", _at(person), f"far from the box: {', '.join(names[joint] for joint in far)}")
    if size is None:
        return
    places = joints[marked, :2]
    outside = marked[((places < -SLACK) | (places > np.array(size) - 1 + SLACK)).any(axis=1)]
    if len(outside):
        what = f"outside of the picture of {size[0]}×{size[1]}: {', '.join(names[joint] for joint in outside)}"
        yield Issue("joint-outside", _at(person), what)
    width = min(box.left + box.width, size[0]) - max(box.left, 0)
    height = min(box.top + box.height, size[1]) - max(box.top, 0)
    if max(0, width) * max(0, height) < LEAST_INSIDE * box.width * box.height:
        what = f"more than half of the box {', '.join(f'{side:g}' for side in box)} is outside of the picture"
        yield Issue("box-outside", _at(person), what)


def _repeated(people: list[Person]) -> Iterator[Issue]:
    """Yield issues of annotations in one picture with nearly the same joints; joints that one of them lacks do not count."""
    if not 1 < len(people) <= MOST_COMPARED:
        return
    joints = np.stack([person.joints for person in people])  # (N, K, 3)
    marked = joints[..., 2] > 0
    for number, person in enumerate(people[:-1]):
        both = marked[number] & marked[number + 1 :]  # (N - number - 1, K)
        apart = np.hypot(*np.moveaxis(joints[number + 1 :, :, :2] - joints[number, :, :2], -1, 0))
        mean = (apart * both).sum(axis=1) / both.sum(axis=1).clip(1)
        same = (both.sum(axis=1) >= FEW) & (mean <= SAME * max(person.target.box[2:]))
        if same.any():
            other = people[number + 1 + int(same.argmax())]
            yield Issue("repeated", _at(person), f"has nearly the same joints as annotation {other.target.number}")


def _leaks(contents: PeopleContents, missing: set[str]) -> Iterator[Issue]:
    places = {(str(person.image), split): person.image for split, people in contents.splits.items() for person in people}
    there = [(split, image) for (name, split), image in places.items() if name not in missing]
    splits, images = [split for split, _ in there], [image for _, image in there]
    for group in same_files(images):
        (first, *_), found = group, dict.fromkeys(splits[place] for place in group)
        if len(found) > 1:
            other = next(place for place in group if splits[place] != splits[first])
            what = f"the same picture as {images[other]!s}; in the splits {', '.join(found)}"
            yield Issue("leak", str(images[first]), what)
