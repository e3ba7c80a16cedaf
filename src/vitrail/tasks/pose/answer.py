"""Predicted people in an image with their joints, as JSON, table rows, text lines, or a drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from vitrail.data.images.box_preparation import Box
from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row
from vitrail.tasks.pose.metrics import CATEGORY, Found, distances, oks, person_score
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton


class FoundPerson(NamedTuple):
    """A person in an image, with predicted joints."""

    box: Box
    """The box that was passed to the model."""
    joints: np.ndarray
    """float64 (K, 2): x and y in pixels of the upright image; the centre of its first pixel is (0, 0)."""
    scores: np.ndarray
    """float64 (K,): the model's confidence in each joint."""
    score: float
    """Confidence in the person; see `vitrail.tasks.pose.metrics.person_score`."""

    def to_json(self, skeleton: Skeleton) -> dict[str, Any]:
        """Return the person as an entry of COCO's keypoint results, and the joints by name.

        There is no ``bbox``: COCO's evaluators would take a person's size from it instead of from the joints.
        """
        rows = np.column_stack([self.joints, self.scores])  # (K, 3)
        return {
            "category_id": CATEGORY,
            "keypoints": rows.ravel().tolist(),
            "score": self.score,
            "joints": dict(zip(skeleton.joints, rows.tolist(), strict=True)),
        }


@dataclass(frozen=True)
class PoseAnswer(Answer):
    """The people in an image, in the order of their boxes."""

    people: Sequence[FoundPerson]
    skeleton: Skeleton
    number: int | None = None
    """COCO's image id, or None if it is unknown."""

    def to_json(self, name: str) -> dict[str, Any]:
        return {"image": name, "people": [{"bbox": list(one.box), **one.to_json(self.skeleton)} for one in self.people]}

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return an entry per person, as in COCO's keypoint results."""
        picture = {"image": name, "image_id": self.number}
        return [{**picture, "box": list(one.box), **one.to_json(self.skeleton)} for one in self.people]

    def rows(self) -> list[Row]:
        return [
            [str(number), *person_cells(one.box, one.score, one.joints, one.scores)] for number, one in enumerate(self.people, 1)
        ]

    def lines(self) -> list[str]:
        found = []
        for number, one in enumerate(self.people, 1):
            rows = zip(self.skeleton.joints, one.joints.tolist(), one.scores.tolist(), strict=True)
            joints = ", ".join(f"{name} {x:.1f} {y:.1f} ({score:.2f})" for name, (x, y), score in rows)
            found.append(f"person {number} ({one.score:.2f}): {joints}")
        return found or ["nobody"]

    def draw(self, picture: Image.Image) -> Image.Image:
        """Return the image with skeletons drawn, and with boxes, unless the only box is the full image."""
        from vitrail.tasks.pose.study import skeletons

        count, boxes = len(self.skeleton.joints), [one.box for one in self.people]
        joints = np.array([one.joints for one in self.people]).reshape(-1, count, 2)  # also without people
        scores = np.array([one.scores for one in self.people]).reshape(-1, count)
        given = [] if boxes == [Box.of_picture(picture.size)] else boxes
        return skeletons.draw_people(picture, joints, self.skeleton, scores, boxes=given)


def person_head(skeleton: Skeleton) -> Row:
    """Return the column names of `person_cells`."""
    return [*Box._fields, "score", *(f"{joint}_{column}" for joint in skeleton.joints for column in ("x", "y", "score"))]


def person_cells(box: Box, score: float, joints: np.ndarray, scores: np.ndarray) -> Row:
    """Return the cells of a person: box, score, and position and score of each joint.

    Args:
        box: box that was passed to the model.
        score: score of the person.
        joints: positions in the image, (K, 2).
        scores: scores of the joints, (K,).
    """
    cells = [
        cell for (x, y), own in zip(joints.tolist(), scores.tolist(), strict=True) for cell in (_pixel(x), _pixel(y), _share(own))
    ]
    return [*map(_pixel, box), _share(score), *cells]


def judged_rows(people: Sequence[Person], found: Found, skeleton: Skeleton) -> list[Row]:
    """Return a header and a row per annotated person: `person_cells`, OKS, and each joint's pixels from its annotation."""
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


def _pixel(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6f}"
