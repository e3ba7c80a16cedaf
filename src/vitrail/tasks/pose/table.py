"""Found joints as a table for spreadsheets, a row for each person."""

from collections.abc import Iterator, Sequence

import numpy as np

from vitrail.data.images.box_preparation import Box
from vitrail.tasks.answer_table import Row
from vitrail.tasks.pose.metrics import Found, distances, oks, person_score
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton

COLUMNS = ("x", "y", "score")
"""Of each joint."""


def person_head(skeleton: Skeleton) -> Row:
    """Return the names of the columns of `person_cells`."""
    return [*Box._fields, "score", *(f"{joint}_{column}" for joint in skeleton.joints for column in COLUMNS)]


def person_cells(box: Box, score: float, joints: np.ndarray, scores: np.ndarray) -> Row:
    """Return the box, the score, and of each joint where it was found, how surely.

    Args:
        box: in which the person was looked for.
        score: how sure the model is of the person.
        joints: places in the picture, (K, 2).
        scores: how sure it is of each, (K,).
    """
    return [*_pixels(box), _share(score), *_joints(joints, scores)]


def judged_rows(people: Sequence[Person], found: Found, skeleton: Skeleton) -> list[Row]:
    """Return a head and a row for each marked person: as `person_cells`, OKS, pixels from each joint to where it is marked."""
    head = ["image", *person_head(skeleton), "oks", *(f"{joint}_distance" for joint in skeleton.joints)]
    scores, alike = person_score(found.scores).tolist(), oks(found, people, skeleton).tolist()
    judged = zip(people, found.joints, found.scores, scores, alike, distances(found, people, skeleton).tolist(), strict=True)
    return [
        head,
        *(
            [person.name, *person_cells(person.target.box, score, joints, own), _share(similar), *map(_pixel, distance)]
            for person, joints, own, score, similar, distance in judged
        ),
    ]


def _joints(places: np.ndarray, scores: np.ndarray) -> Iterator[str]:
    """The cells of all joints of a person, whose places are (K, 2) and scores (K,)."""
    for place, score in zip(places.tolist(), scores.tolist(), strict=True):
        yield from (*_pixels(place), _share(score))


def _pixels(values: Sequence[float]) -> list[str]:
    return [_pixel(value) for value in values]


def _pixel(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6f}"
