"""Whether left and right are exchanged in all of a data set, as where the left of the picture was taken for a person's left."""

from collections.abc import Sequence

import numpy as np

from vitrail.data.items import Issue
from vitrail.data.poses.people import Person
from vitrail.data.poses.skeleton import Skeleton

EYES, LIMBS = ("eye",), ("shoulder", "hip")
FEWEST_EYES, MOST_EYES = 20, 0.8
"""Eyes are in doubt where the left one is on the left of at least such a share of so many people."""
FEWEST_LIMBS, MOST_LIMBS = 100, 0.65
"""As many shoulders and hips, and their share."""


def sides_exchanged(people: Sequence[Person], skeleton: Skeleton, source: str) -> tuple[list[Issue], list[Issue]]:
    """An issue, or a notice, of data whose joints named left are on the left in the picture.

    The left hand of somebody who faces the camera is on the right. Both eyes are seen only of people who face it, so where the
    left eye is on the left of most, names are exchanged: an issue. Shoulders and hips are marked of people who turn their back,
    too, where it is the other way round: their left is on the left of 23 % of people in COCO and of 32 % in Leeds Sports, and so
    of 77 % and 68 % where names are exchanged. More than `MOST_LIMBS` may also mean a camera that follows people: a notice, and
    none where eyes speak against it. Of one person nothing is said, who may turn any way.
    """
    eyes, count = _on_the_left(people, skeleton, EYES)
    if count >= FEWEST_EYES:
        what = f"the left eye is on the left of {eyes:.0%} of {count:,} people, as if left and right were exchanged"
        return ([Issue("sides", source, what)] if eyes >= MOST_EYES else []), []
    limbs, count = _on_the_left(people, skeleton, LIMBS)
    if count < FEWEST_LIMBS or limbs < MOST_LIMBS:
        return [], []
    what = f"left shoulders and hips are on the left in {limbs:.0%} of {count:,} cases"
    return [], [Issue("sides", source, f"{what}: people are seen from behind, or left and right are exchanged")]


def _on_the_left(people: Sequence[Person], skeleton: Skeleton, words: tuple[str, ...]) -> tuple[float, int]:
    """Of pairs of joints with one of some words in their names that are both marked: the share whose left one is further left,
    and how many there are.
    """
    chosen = [skeleton.index(*pair) for pair in skeleton.complete.pairs or () if skeleton.has_word(pair[0], words)]
    ahead: list[bool] = []
    for person in people:
        joints = person.joints
        ahead += [
            bool(joints[left, 0] < joints[right, 0]) for left, right in filter(None, chosen) if joints[[left, right], 2].all()
        ]
    return float(np.mean(ahead)) if ahead else 0.0, len(ahead)
