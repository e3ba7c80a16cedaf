"""Warnings about implausible numbers in annotations of people; the numbers are used as they are."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import Source, upright_size
from vitrail.data.images.plan import Extent
from vitrail.errors import DataError
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton, first_of

LOOKED_AT = 100
"""Maximum number of people whose images are opened for their size."""
FEWEST, LEAST_BEYOND, BEYOND = 4, 0.3, 0.02
"""Least number of boxes to judge, least fraction of boxes beyond their image, and tolerance as a fraction of the side."""
CORNERS = ((0.0, 0.0), (-1.0, -1.0))
"""Positions that some tools write for joints that are not annotated."""


def suspicions(splits: Mapping[str, Sequence[Person]], skeleton: Skeleton) -> Iterator[str]:
    """Yield warnings: about joints in the image's corner, and about boxes that seem to be two corners."""
    people = [person for some in splits.values() for person in some]
    joints = Counter[str]()
    for person in people:
        at = [place[2] > 0 and place[:2] in CORNERS for place in person.target.joints]
        joints.update(name for name, cornered in zip(skeleton.joints, at, strict=True) if cornered)
    if joints:
        what = f"{joints.total():,} joints are marked as visible at (0, 0), the image's corner, as if they were not annotated"
        yield f"warning: {what}: give them the visibility 0, or leave their positions empty ({first_of(list(joints))})"
    yield from corners_in([(person.target.box, person.image) for person in people])


def corners_in(boxes: Sequence[tuple[Box, Source]]) -> list[str]:
    """Return the `corners_note` for boxes in images, some of which are opened, as a list; empty without a warning."""
    sized: list[tuple[Box, Extent]] = []
    for box, image in boxes[:: max(1, -(-len(boxes) // LOOKED_AT))]:
        with suppress(DataError):
            sized.append((box, upright_size(image)))
    return [note for note in [corners_note(sized)] if note]


def corners_note(boxes: Iterable[tuple[Box, Extent]]) -> str:
    """Return a warning if boxes seem to be corners, x1, y1, x2, y2, instead of left, top, width, height; else "".

    The condition: many boxes reach beyond their images, and none would as corners.
    """
    rows = [(*box, *size) for box, size in boxes]
    left, top, width, height, wide, high = np.array(rows, np.float64).reshape(-1, 6).T
    slack_x, slack_y = BEYOND * wide, BEYOND * high
    beyond = (left + width > wide + slack_x) | (top + height > high + slack_y)
    inside = (width > left) & (height > top) & (width <= wide + slack_x) & (height <= high + slack_y)
    inside &= (left >= -slack_x) & (top >= -slack_y)
    if len(rows) < FEWEST or beyond.mean() < LEAST_BEYOND or not inside.all():
        return ""
    what = f"{beyond.sum():,} of {len(rows):,} boxes reach beyond their images, and none would if they were corners"
    return f"warning: {what} (x1, y1, x2, y2): a box is left, top, width and height"
