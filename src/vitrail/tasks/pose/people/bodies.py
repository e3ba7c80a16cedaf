"""The categories in a COCO file whose annotations are people, and their skeleton."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from vitrail.data.tables.coco import whole
from vitrail.errors import ConfigError, DataError
from vitrail.settings import brief
from vitrail.tasks.pose.people.skeleton import MOST_JOINTS, MOST_LIMBS, Skeleton

FORMAT = "see https://cocodataset.org/#format-data, keypoint detection"
FROM_0 = "limbs of the category's skeleton, whose joints are counted from 0 there"
NO_LIMBS = "limbs of the category's skeleton that connect no two of its joints, left out"
MOST_NAMED = 8
"""Maximum number of categories in an error message."""


class Body(NamedTuple):
    """Categories whose annotations are people, and their joints."""

    categories: dict[int, str]
    """Names of the categories by id."""
    skeleton: Skeleton


def body_in(file: Path, values: dict[str, Any], wanted: Skeleton | None, notes: Counter[str]) -> Body:
    """Return the categories and skeleton of a file; if categories have different joints, those with the joints of ``wanted``.

    Args:
        file: path for errors.
        values: content of the file, with its lists of categories and annotations.
        wanted: a model's skeleton, or one from the settings.
        notes: counts skipped limbs.

    Raises:
        DataError: no category has joints, or several have different ones and ``wanted`` matches none.
    """
    marked = [one for one in values["categories"] if isinstance(one, dict) and isinstance(one.get("keypoints"), list)]
    marked = [one for one in marked if one["keypoints"]]
    if not marked:
        raise DataError("no category has keypoints", where=file, hint=f"give a COCO file of keypoints; {FORMAT}")
    if len(marked) > 1:
        used = {whole(one.get("category_id")) for one in values["annotations"] if isinstance(one, dict)}
        marked = [one for one in marked if whole(one.get("id")) in used] or marked[:1]
        marked = [one for one in marked if wanted and _is_of(one, wanted)] or marked
    first = marked[0]
    if len(first["keypoints"]) > MOST_JOINTS:
        what = f"the category has {len(first['keypoints']):,} keypoints, more than {MOST_JOINTS:,}"
        raise DataError(what, where=file, hint=f"name at most {MOST_JOINTS:,} joints")
    if any(one["keypoints"] != first["keypoints"] for one in marked):
        names = ", ".join(brief(one.get("name")) for one in marked[:MOST_NAMED])
        hint = f"choose one by its joints: --task.skeleton.joints '[{', '.join(map(str, marked[-1]['keypoints'][:MOST_NAMED]))}]'"
        raise DataError(f"several categories have people marked, with different keypoints: {names}", where=file, hint=hint)
    categories = {number: str(one.get("name")) for one in marked if (number := whole(one.get("id"))) is not None}
    if not categories:
        raise DataError(f"the category with keypoints has the id {brief(first.get('id'))}", where=file, hint=FORMAT)
    drawn: Any = next((one["skeleton"] for one in marked if one.get("skeleton")), [])
    try:
        skeleton = Skeleton.of(first["keypoints"], limbs_of(drawn, first["keypoints"], notes, file))
    except ConfigError as error:
        raise DataError(f"the category's keypoints are no joints: {error.what}", where=file, hint=error.hint) from None
    return Body(categories, skeleton)


def _is_of(category: dict[str, Any], wanted: Skeleton) -> bool:
    try:
        return Skeleton.of(category["keypoints"]).is_like(wanted)
    except ConfigError:
        return False


def limbs_of(limbs: Any, joints: list[Any], notes: Counter[str], file: Path) -> list[tuple[int, int]]:
    """Return each limb once, with joints numbered from 0; a file may number them from 1 (COCO) or 0, or name them."""
    limbs = limbs if isinstance(limbs, list) else [limbs]
    if len(limbs) > MOST_LIMBS:
        hint = f"connect each joint with its neighbours alone, by at most {MOST_LIMBS:,} limbs"
        raise DataError(f"the category's skeleton has {len(limbs):,} limbs, more than {MOST_LIMBS:,}", where=file, hint=hint)
    pairs = [
        [end if isinstance(end, str) and end in joints else whole(end) for end in limb] if isinstance(limb, list) else []
        for limb in limbs
    ]
    numbers = {end for pair in pairs for end in pair if isinstance(end, int)}
    first = 0 if 0 in numbers and len(joints) not in numbers else 1
    found: dict[frozenset[int], tuple[int, int]] = {}
    for pair in pairs:
        ends = [joints.index(end) if isinstance(end, str) else end - first for end in pair if end is not None]
        if len(pair) != 2 or len(set(ends)) != 2 or not all(0 <= end < len(joints) for end in ends):
            notes[NO_LIMBS] += 1
            continue
        one, other = ends
        found.setdefault(frozenset(ends), (one, other))
    if not first:
        notes[FROM_0] += len(found)
    return list(found.values())
