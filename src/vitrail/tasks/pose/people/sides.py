"""Check whether left and right are exchanged, in a whole data set (the image's left was annotated as the person's left) or in one
pair of joints (two columns were exchanged).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from vitrail.data.items import Issue
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Limb, Skeleton, first_of

EYES, LIMBS = ("eye",), ("shoulder", "hip")
FEWEST_EYES, MOST_EYES = 20, 0.8
"""Least number of people with both eyes, and least fraction with the left eye on the left, for which eyes are an issue."""
FEWEST_LIMBS, MOST_LIMBS = 100, 0.65
"""The same for shoulders and hips, or for all pairs of people if there are too few of these."""
FEWEST_ALIKE, LEAST_ALIKE = 30, 0.25
"""Least number of people with a pair and another one, and largest fraction in which a doubtful pair points like the others."""


@dataclass(frozen=True)
class Sides:
    """Result of the check."""

    issues: list[Issue]
    notices: list[Issue]
    undecided: list[str]
    """Notes on checks for which there are too few annotations."""


def judge_sides(people: Sequence[Person], skeleton: Skeleton, source: str) -> Sides:
    """Return issues and notices if left and right seem to be exchanged.

    The left hand of a person who faces the camera is on the right of the image. Both eyes are visible only in people who face
    it: if the left eye is on the left for most, names are exchanged (an issue). Shoulders and hips are also annotated for people
    seen from behind: their left is on the left for 23 % of people in COCO and 32 % in Leeds Sports, and so for 77 % and 68 % if
    names are exchanged. If there are few shoulders and hips, all pairs vote. More than `MOST_LIMBS` may also mean a camera that
    follows people (a notice, but none if the eyes contradict it).

    From right to left joint, all pairs of a person point in about the same direction. Each pair agrees with the sum of the
    others in at least 91 % of 154 people in COCO and 86 % of 3,996 in Leeds Sports; if it alone is exchanged, it agrees in at
    most 9 and 14 % (a notice).
    """
    pairs = Pairs.of(people, skeleton)
    if not pairs.names:
        what = "no joint is on one side of the body, by its name: whether left and right are exchanged is not looked at"
        return Sides([], [], [f"{what}; task.skeleton.pairs names pairs"])
    (issues, notices, undecided), (single, unseen) = _of_everybody(pairs, source), _of_single_pairs(pairs, source)
    return Sides(issues, notices + single, undecided + unseen)


@dataclass(frozen=True)
class Pairs:
    """Directions of the pairs of joints of each person."""

    names: tuple[Limb, ...]
    ways: np.ndarray
    """Unit vectors from the right to the left joint, (N, P, 2); 0 if they are not both annotated, or coincide."""

    @classmethod
    def of(cls, people: Sequence[Person], skeleton: Skeleton) -> Self:
        names = skeleton.complete.pairs or ()
        ends = np.array([skeleton.index(*pair) for pair in names], int).reshape(-1, 2)
        joints = np.array([person.joints[ends] for person in people])  # of left and right x, y, marked
        joints = joints.reshape(len(people), len(ends), 2, 3)
        ways = joints[:, :, 0, :2] - joints[:, :, 1, :2]
        lengths = np.linalg.norm(ways, axis=-1, keepdims=True)
        seen = (joints[..., 2] > 0).all(axis=-1, keepdims=True) & (lengths > 0)
        return cls(names, np.where(seen, ways / np.where(seen, lengths, 1), 0))

    def with_words(self, words: tuple[str, ...]) -> np.ndarray:
        """Return the directions (M, 2) of all pairs with one of these words in their names."""
        chosen = np.array([Skeleton.has_word(left, words) for left, _ in self.names])
        return _known(self.ways[:, chosen])

    @property
    def of_people(self) -> np.ndarray:
        """Return the direction (M, 2) of each person, the sum over pairs."""
        return _known(self.ways.sum(axis=1))


def _known(ways: np.ndarray) -> np.ndarray:
    return np.asarray(ways[ways.any(axis=-1)])


def _of_everybody(pairs: Pairs, source: str) -> tuple[list[Issue], list[Issue], list[str]]:
    eyes, limbs, whole = pairs.with_words(EYES), pairs.with_words(LIMBS), pairs.of_people
    if len(eyes) >= FEWEST_EYES:
        share = _on_the_left(eyes)
        what = f"the left eye is on the left of {share:.0%} of {len(eyes):,} people, as if left and right were exchanged"
        return ([Issue("sides", source, what)] if share >= MOST_EYES else []), [], []
    by_limbs = len(limbs) >= FEWEST_LIMBS
    votes = limbs if by_limbs else whole
    if len(votes) < FEWEST_LIMBS:
        what = f"it takes {FEWEST_EYES} people with both eyes marked, or {FEWEST_LIMBS} with another pair, and there are"
        return (
            [],
            [],
            [f"too little to tell whether left and right are exchanged everywhere: {what} {len(eyes)} and {len(votes)}"],
        )
    share = _on_the_left(votes)
    what = "left shoulders and hips are on the left in" if by_limbs else "the left ones of all pairs together are on the left in"
    what = f"{what} {share:.0%} of {len(votes):,} cases: people are seen from behind, or left and right are exchanged"
    return [], ([Issue("sides", source, what)] if share >= MOST_LIMBS else []), []


def _on_the_left(ways: np.ndarray) -> float:
    return float(np.mean(ways[:, 0] < 0))


def _of_single_pairs(pairs: Pairs, source: str) -> tuple[list[Issue], list[str]]:
    """Return notices on pairs that point against the others, and a note on pairs with too few people."""
    others = pairs.ways.sum(axis=1, keepdims=True) - pairs.ways
    along = (pairs.ways * others).sum(axis=-1)  # (N, P)
    counts, found, rare = (along != 0).sum(axis=0).tolist(), [], []
    for (left, right), count, alike in zip(pairs.names, counts, (along > 0).sum(axis=0).tolist(), strict=True):
        if count < FEWEST_ALIKE:
            rare.append(f"{left} ({count:,})")
        elif alike <= LEAST_ALIKE * count:
            what = f"{left} and {right} are the other way round than all other pairs in {1 - alike / count:.0%}"
            found.append(Issue("sides", source, f"{what} of {count:,} people, as if these two were exchanged"))
    little = "too little to tell whether single pairs are exchanged, which takes"
    return found, [f"{little} {FEWEST_ALIKE} people with another pair beside it: {first_of(rare)}"] if rare else []
