"""Data sets of people: images, and a box and the positions of joints for each person."""

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
"""x and y in pixels, (0, 0) the centre of the first pixel, and COCO's visibility: 0 not annotated, 1 hidden, 2 visible."""

EMPTY_BOX = "empty-box"
"""Kind of the issue of a person whose box has no area."""


class Pose(NamedTuple):
    """A person's box and joints."""

    box: Box
    joints: tuple[Joint, ...]
    area: float
    """Area of the person in pixels, by which COCO scales distances."""
    image: int
    """The image's id, shared by all people in it: COCO's id, unless several files use the same."""
    number: int
    """The annotation's id."""


@dataclass(frozen=True)
class Person:
    """One person in an image."""

    name: str
    """The image's name and the annotation's id."""
    image: Source
    target: Pose
    own_number: int | None = None
    """The image's id in its file, if it was replaced because several files use the same id."""

    @property
    def joints(self) -> np.ndarray:
        """Joints as float64 (K, 3): x, y, visibility."""
        return np.array(self.target.joints, np.float64).reshape(-1, 3)

    def in_box(self, box: Box | None) -> "Person":
        """Return the person with another box, or unchanged for None."""
        return self if box is None else replace(self, target=self.target._replace(box=box))


class Picture(NamedTuple):
    """An image, and its annotations that are not people with annotated joints."""

    number: int
    """As `Pose.image`."""
    path: Path
    known: int | None = None
    """COCO's id in the file, which need not be unique across files."""
    ignored: tuple[Mapping[str, Any], ...] = ()
    """COCO's annotations of crowds and of people without annotated joints, which an evaluation ignores."""


@dataclass(frozen=True)
class PeopleContents:
    """Content of a data set of people as it was read, before it is split."""

    source: str
    """The ``--data`` argument that opens it from any working directory."""
    skeleton: Skeleton
    splits: dict[str, list[Person]]
    """The data's own splits; "all" holds all people if there are none."""
    pictures: dict[str, list[Picture]] = field(default_factory=dict)
    """All images in COCO's files, including those without people, by split."""
    issues: list[Issue] = field(default_factory=list)
    """Faults that prevent the data from being opened."""
    warnings: list[Issue] = field(default_factory=list)
    """Faults that training ignores."""
    notices: list[Issue] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of skipped annotations by reason."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Width and height of each image in the annotations, by path."""
    notes: list[str] = field(default_factory=list)
    """Notes on values that are interpreted differently or look wrong."""


@dataclass(frozen=True)
class PeopleData(Data):
    """People in named splits. All people in an image, and in its copies, are in the same split."""

    source: str
    skeleton: Skeleton
    splits: dict[str, list[Person]]
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    notes: tuple[str, ...] = ()
    pictures: Mapping[str, list[Picture]] = field(default_factory=dict)

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
        """Return the images with people of a split, and the images of its file without people."""
        found = {person.target.image: Picture(person.target.image, Path(str(person.image))) for person in self.split(split)}
        elsewhere = {person.target.image for people in self.splits.values() for person in people} - set(found)
        for own, pictures in self.pictures.items():
            empty = split in ("all", own)
            found |= {one.number: one for one in pictures if one.number in found or (empty and one.number not in elsewhere)}
        return list(found.values())

    def without(self, names: Container[str]) -> "PeopleData":
        """Return the data without the people of these names, and without images that have no other people."""
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
    """Return the data set with three splits: its own, those of ``assignment``, or random ones of whole images by ``seed``."""
    made = divided(contents.splits, to_divide(contents.splits), partial(_assign, seed=seed), shares, assignment)
    notes = [*(f"left out: {count:,} {reason}" for reason, count in contents.left_out.items() if count), *contents.notes]
    if empty := sum(warning.kind == EMPTY_BOX for warning in contents.warnings):
        notes.append(f"boxes that are empty, for which the smallest around the joints is taken: {empty:,}")
    if made.added:
        notes.append(f"people added since the splits were made, who are in none: {made.added:,}")
    return PeopleData(contents.source, contents.skeleton, made.splits, made.assignment, made.own, tuple(notes), contents.pictures)


def _assign(people: list[Person], shares: Mapping[str, float], seed: int) -> dict[str, str]:
    """Return the split of each person by name: random images up to each split's fraction, copies of an image together."""
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
