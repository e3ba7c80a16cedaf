"""Check of annotated people: faults, suspicious annotations, and a summary."""

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
"""Number of annotated joints of a person below which a notice is given, and that two annotations of one person must share."""
SLACK = 1.0
"""Pixels by which a joint may lie outside the image: some tools count from 1."""
RIM = 0.125
"""Margin around a box in which joints are still seen, as a fraction of the longer side."""
FAR, LEAST_INSIDE = 0.5, 0.5
"""Largest distance of a joint from its box, as a fraction of the longer side, and least fraction of a box inside its image."""
SAME = 0.02
"""Largest mean distance of joints between two annotations of one person, as a fraction of the box's longer side."""
MOST_COMPARED = 300
"""Maximum number of people in an image that are compared with one another."""


@dataclass(frozen=True)
class PeopleCheck(Found):
    """The result of a check of people.

    Kinds of issues: ``missing`` and ``unreadable`` (images), ``size`` (differs from the annotations), ``no-joint-in-box``,
    ``repeated`` (two annotations of one person), ``leak`` (one image in several splits), ``sides`` (left and right exchanged,
    judged by the eyes), ``empty-box``, ``bad-image``, ``bad-annotation``, ``bad-row``. Kinds of notices: ``no-joints`` (a box
    without annotated joints, which is skipped), ``joint-outside`` and ``box-outside`` (of the image), ``far-joint`` (from its
    box), ``few-joints``, ``sides`` (judged by shoulders and hips, or by a pair).
    """

    contents: PeopleContents
    issues: list[Issue]
    notices: list[Issue]
    undecided: list[str]
    """Notes on checks that were skipped for lack of data."""

    @property
    def people(self) -> list[Person]:
        return _people(self.contents)

    @property
    def splits(self) -> dict[str, dict[str, int]]:
        """Return the number of people and images by split; data without splits has the split "all"."""
        return {
            split: {"people": len(people), "images": len({str(person.image) for person in people})}
            for split, people in self.contents.splits.items()
        }

    @property
    def marked(self) -> dict[str, float]:
        """Return the fraction of people for whom each joint is annotated."""
        joints = self.contents.skeleton.joints
        marks = np.array([person.joints[:, 2] > 0 for person in self.people]).reshape(-1, len(joints))
        return dict(zip(joints, (marks.sum(axis=0) / max(1, len(marks))).tolist(), strict=True))

    @property
    def boxes(self) -> dict[str, list[float]]:
        """Return the smallest, median and largest width and height of all boxes; widths and heights are independent."""
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
            "untold": self.undecided,
            **self.listed,
        }

    def lines(self) -> Iterator[str]:
        yield f"source   {self.contents.source}"
        for split, count in self.splits.items():
            yield f"{split:<7}  {count['people']:,} people in {count['images']:,} images"
        for reason, number in self.contents.left_out.items():
            yield f"note     left out: {number:,} {reason}"
        for line in (*self.contents.notes, *self.undecided):
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
    """Check annotated people, and read every image once.

    Args:
        data, skeleton: as for `open_people`.
        on_start: called with the number of images.
        on_image: called with 1 after every image.

    Raises:
        DataError: the data does not exist or cannot be read, or the skeleton has other joints.
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
                issues.append(Issue("no-joint-in-box", _at(person), "no annotated joint lies in the box"))
            notices += _suspicious(person, beyond, contents.skeleton.joints, size)
        issues += _repeated(people)
        if on_image:
            on_image(1)
    issues += _leaks(contents, missing)
    sides = judge_sides(_people(contents), contents.skeleton, contents.source)
    return PeopleCheck(contents, issues + sides.issues, notices + sides.notices, sides.undecided)


def _people(contents: PeopleContents) -> list[Person]:
    return [person for people in contents.splits.values() for person in people]


def _at(person: Person) -> str:
    return f"{person.image!s}#{person.target.number}"


def _other_size(picture: str, size: Extent, expected: Extent) -> Issue:
    what = f"the image is {size[0]}×{size[1]}, and {expected[0]}×{expected[1]} in the annotations"
    turned = " after its EXIF rotation is applied; joints are positions in the upright image"
    return Issue("size", picture, what + (turned if expected == size[::-1] else ""))


def _beyond(person: Person) -> np.ndarray:
    """Return the distance in pixels by which each annotated joint is outside its box, along its farthest side: (M,)."""
    box, joints = person.target.box, person.joints
    places = joints[joints[:, 2] > 0, :2]
    low = np.array([box.left, box.top])
    return np.asarray(np.maximum(low - places, places - low - (box.width, box.height)).max(axis=1))


def _suspicious(person: Person, beyond: np.ndarray, names: tuple[str, ...], size: Extent | None) -> Iterator[Issue]:
    """Yield notices on few joints, joints far from their box, and joints and boxes outside the image, if its size is known."""
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
        what = f"outside the image of {size[0]}×{size[1]}: {', '.join(names[joint] for joint in outside)}"
        yield Issue("joint-outside", _at(person), what)
    width = min(box.left + box.width, size[0]) - max(box.left, 0)
    height = min(box.top + box.height, size[1]) - max(box.top, 0)
    if max(0, width) * max(0, height) < LEAST_INSIDE * box.width * box.height:
        what = f"more than half of the box {', '.join(f'{side:g}' for side in box)} is outside the image"
        yield Issue("box-outside", _at(person), what)


def _repeated(people: list[Person]) -> Iterator[Issue]:
    """Yield issues for annotations of one image with nearly equal joints; only joints annotated in both are compared."""
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
            what = f"the same image as {images[other]!s}; in the splits {', '.join(found)}"
            yield Issue("leak", str(images[first]), what)
