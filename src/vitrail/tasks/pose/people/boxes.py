"""Matching of a detector's boxes to annotated people, by the overlap with the annotated box."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from vitrail.data.images.box_preparation import Box
from vitrail.tasks.pose.files.detections import Detection, Detections
from vitrail.tasks.pose.files.suspicions import corners_in
from vitrail.tasks.pose.people.people import PeopleContents, Person

LEAST_OVERLAP = 0.5
"""Least intersection over union between an annotated box and the detector's box."""


def with_boxes(contents: PeopleContents, file: Path) -> tuple[PeopleContents, list[str]]:
    """Return the people in the boxes of a file, see `Detections.read`, and notes about people who keep their annotated box.

    Pairs of a person and a box in one image are matched by overlap, the largest first; nobody gets two boxes, and no box is
    used twice.

    Raises:
        DataError: the file is missing or has an invalid box, or no box is in an image of the data.
    """
    detections, notes = Detections.read(file), list[str]()
    detections.tell(notes.append)
    known = {picture.number: picture.known for pictures in contents.pictures.values() for picture in pictures}
    pictures: dict[int, list[Person]] = {}
    for person in (person for people in contents.splits.values() for person in people):
        pictures.setdefault(person.target.image, []).append(person)
    places = [(Path(str(people[0].image)), known.get(number)) for number, people in pictures.items()]
    found: dict[str, Box] = {}
    detected = detections.of(places)
    for people, boxes in zip(pictures.values(), detected, strict=True):
        found |= _matched(people, boxes)
    notes += corners_in([(one.box, image) for (image, _), boxes in zip(places, detected, strict=True) for one in boxes])
    splits = {split: [person.in_box(found.get(person.name)) for person in people] for split, people in contents.splits.items()}
    if without := sum(map(len, splits.values())) - len(found):
        whose = f"{without:,} of {without + len(found):,} people"
        notes.append(f"no box of {file} overlaps the annotated box of {whose} by half: they keep their own")
    return replace(contents, splits=splits), notes


def overlaps(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of N boxes (N, 4), left, top, width and height, with M others: (N, M)."""
    low = np.maximum(own[:, None, :2], others[None, :, :2])
    high = np.minimum((own[:, :2] + own[:, 2:])[:, None], (others[:, :2] + others[:, 2:])[None])
    shared = (high - low).clip(0).prod(axis=-1)
    return np.asarray(shared / (own[:, 2:].prod(axis=1)[:, None] + others[:, 2:].prod(axis=1)[None] - shared))


def _matched(people: list[Person], boxes: list[Detection]) -> dict[str, Box]:
    """Return the matched boxes of one image, by the name of the person."""
    own, others = np.array([person.target.box for person in people]), np.array([found.box for found in boxes]).reshape(-1, 4)
    overlap, found = overlaps(own, others), dict[str, Box]()
    while overlap.size and overlap.max() >= LEAST_OVERLAP:
        person, box = np.unravel_index(overlap.argmax(), overlap.shape)
        found[people[person].name] = boxes[box].box
        overlap[person], overlap[:, box] = 0, 0
    return found
