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


def found_rows(names: Sequence[str], boxes: Sequence[Box], found: Found, scores: np.ndarray, skeleton: Skeleton) -> list[Row]:
    """A head, then a row for each person: the picture, the box, the score, and of each joint where it was found, how surely.

    Args:
        names: of N pictures.
        boxes: in which the people were looked for, (N,).
        found: their joints.
        scores: how sure the model is of each person, (N,).
        skeleton: the joints.
    """
    head = ["image", *Box._fields, "score", *(f"{joint}_{column}" for joint in skeleton.joints for column in COLUMNS)]
    rows = zip(names, boxes, scores.tolist(), found.joints, found.scores, strict=True)
    return [head, *([name, *_pixels(box), _share(score), *_joints(*own)] for name, box, score, *own in rows)]


def judged_rows(people: Sequence[Person], found: Found, skeleton: Skeleton) -> list[Row]:
    """As `found_rows` of marked people, with OKS, and how many pixels each joint is from where it is marked."""
    boxes, names = [person.target.box for person in people], [person.name for person in people]
    (head, *rows) = found_rows(names, boxes, found, person_score(found.scores), skeleton)
    head = [*head, "oks", *(f"{joint}_distance" for joint in skeleton.joints)]
    judged = zip(rows, oks(found, people, skeleton).tolist(), distances(found, people, skeleton).tolist(), strict=True)
    return [head, *([*row, _share(alike), *(_pixel(far) for far in distance)] for row, alike, distance in judged)]


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
