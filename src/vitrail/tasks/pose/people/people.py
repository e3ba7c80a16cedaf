"""What a data set of people is: pictures, a box for each person in them, and the places of joints."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitrail.data.checks.duplicates import same_files
from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import Source
from vitrail.data.items import Data, Issue
from vitrail.data.loading.sampler import shuffled
from vitrail.data.splits import SHARES, Assignment, divided, to_divide
from vitrail.tasks.pose.people.skeleton import Skeleton

Joint = tuple[float, float, int]
"""x and y in pixels, where the centre of the first pixel is (0, 0), and COCO's visibility: 0 not marked, 1 hidden, 2 seen."""


EMPTY_BOX = "empty-box"
"""The kind of an issue: a person is there, and the box has no area."""


class Pose(NamedTuple):
    """Where a person is, and the person's joints."""

    box: Box
    joints: tuple[Joint, ...]
    area: float
    """Pixels that the person covers, by which COCO judges how near is near enough."""
    image: int
    """The picture's number, by which people in the same picture are told; COCO's own, unless several files have it."""
    number: int
    """The annotation's number."""


@dataclass(frozen=True)
class Person:
    """One person in a picture."""

    name: str
    """The picture's name and the annotation's number."""
    image: Source
    target: Pose
    own_number: int | None = None
    """The picture's number in its own file, where it has another one because several files number theirs alike."""

    @property
    def joints(self) -> np.ndarray:
        """float64 (K, 3): x, y, visibility."""
        return np.array(self.target.joints, np.float64).reshape(-1, 3)


class Picture(NamedTuple):
    """A picture, and what is in it beside people with marked joints."""

    number: int
    """As `Pose.image`."""
    path: Path
    known: int | None = None
    """COCO's own number, which pictures of several files may have."""
    ignored: tuple[Mapping[str, Any], ...] = ()
    """COCO's annotations of crowds and of people without marked joints, whom to find is no mistake."""


@dataclass(frozen=True)
class PeopleContents:
    """What a data set of people holds, as it is found, before it is split where it has no splits."""

    source: str
    """The ``--data`` argument that opens it again from anywhere."""
    skeleton: Skeleton
    splits: dict[str, list[Person]]
    """Its own splits; all people are under "all" where it has none."""
    pictures: dict[str, list[Picture]] = field(default_factory=dict)
    """Of COCO's files, by the same splits: all pictures, those without people, too."""
    issues: list[Issue] = field(default_factory=list)
    """What prevents use."""
    warnings: list[Issue] = field(default_factory=list)
    """What a check reports and training passes over."""
    notices: list[Issue] = field(default_factory=list)
    """What a check notes."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many annotations are no part of the data, by the reason."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Width and height of each picture, by its path, where the data says them."""
    notes: list[str] = field(default_factory=list)
    """What is read otherwise than it stands there, or cannot be meant, in words."""


@dataclass(frozen=True)
class PeopleData(Data):
    """People in named splits. All people in a picture, and in copies of it, are in the same split."""

    source: str
    skeleton: Skeleton
    splits: dict[str, list[Person]]
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    notes: tuple[str, ...] = ()
    pictures: Mapping[str, list[Picture]] = field(default_factory=dict)
    """As in `PeopleContents`."""

    things = "people"

    def identity(self, item: Person) -> Any:
        return item.name, item.target if item.own_number is None else item.target._replace(image=item.own_number)

    @property
    def kind(self) -> dict[str, Any]:
        return {"skeleton": self.skeleton.model_dump(mode="json")}

    @property
    def images(self) -> list[Source]:
        return [person.image for people in self.splits.values() for person in people]

    def images_of(self, split: str) -> dict[str, Source]:
        return {str(person.image): person.image for person in self.splits[split]}

    def pictures_of(self, split: str) -> list[Picture]:
        """The pictures that people of a split are in, and of its file the pictures in which there is nobody."""
        found = {person.target.image: Picture(person.target.image, Path(str(person.image))) for person in self.split(split)}
        elsewhere = {person.target.image for people in self.splits.values() for person in people} - set(found)
        for own, pictures in self.pictures.items():
            empty = split in ("all", own)
            found |= {one.number: one for one in pictures if one.number in found or (empty and one.number not in elsewhere)}
        return list(found.values())

    def without(self, names: Container[str]) -> "PeopleData":
        """The data without some people, by name, and without pictures that nobody else is in."""
        kept = {split: [person for person in people if person.name not in names] for split, people in self.splits.items()}
        before, after = ({one.target.image for people in splits.values() for one in people} for splits in (self.splits, kept))
        gone = before - after
        pictures = {own: [one for one in some if one.number not in gone] for own, some in self.pictures.items()}
        return replace(self, splits=kept, pictures=pictures)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(people):,}" for split, people in self.splits.items())
        return f"<PeopleData {self.source}: {len(self.skeleton.joints)} joints; {splits} people>"


def with_splits(
    contents: PeopleContents, seed: int, assignment: Assignment | None = None, shares: Mapping[str, float] = SHARES
) -> PeopleData:
    """A data set with the three splits: its own, or drawn with ``seed`` picture by picture, or as ``assignment`` says."""
    made = divided(contents.splits, to_divide(contents.splits), partial(_assign, seed=seed), shares, assignment)
    notes = [*(f"left out: {count:,} {reason}" for reason, count in contents.left_out.items() if count), *contents.notes]
    if empty := sum(warning.kind == EMPTY_BOX for warning in contents.warnings):
        notes.append(f"boxes that are empty, for which the smallest around the joints is taken: {empty:,}")
    if made.added:
        notes.append(f"people added since the splits were made, who are in none: {made.added:,}")
    told, pictures = tuple(notes), contents.pictures
    return PeopleData(contents.source, contents.skeleton, made.splits, made.assignment, made.own, told, pictures)


def _assign(people: list[Person], shares: Mapping[str, float], seed: int) -> dict[str, str]:
    """The split of each person, by name: pictures at random until every split has its share, copies of a picture together."""
    pictures: dict[int, list[Person]] = {}
    for person in people:
        pictures.setdefault(person.target.image, []).append(person)
    numbers = list(pictures)
    group_of = {place: group[0] for group in same_files([pictures[number][0].image for number in numbers]) for place in group}
    groups: dict[int, list[Person]] = {}
    for place, number in enumerate(numbers):
        groups.setdefault(group_of.get(place, place), []).extend(pictures[number])
    together = list(groups.values())
    order = [together[place] for place in shuffled(len(together), seed, 0)]
    found: dict[str, str] = {}
    for split, share in shares.items():
        wanted = round(share * len(people))
        while len(order) > 1 and wanted > 0:
            chosen = order.pop()
            found.update({person.name: split for person in chosen})
            wanted -= len(chosen)
    return {person.name: found.get(person.name, "train") for person in people}
