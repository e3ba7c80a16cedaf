"""Groups of images that must not be divided between splits: of one site, camera, individual, patient or video."""

from collections.abc import Mapping, Sequence

import numpy as np

from vitrail.data.items import Label
from vitrail.errors import DataError

GROUP = "group"
"""The column of a table that names the group of each image."""
HINT = "give more groups, lower --data.test-share or --data.val-share, or remove the column of groups"


def joined_groups(names: Sequence[str], groups: Mapping[str, str], copies: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the positions of the images of each group; an image without a group forms one.

    Groups with copies of the same image (``copies``: lists of positions) are joined.
    """
    first: dict[str, int] = {}
    root = [first.setdefault(groups[name], place) if groups.get(name) else place for place, name in enumerate(names)]

    def top(place: int) -> int:
        while root[place] != place:
            place = root[place]
        return place

    for one, *others in copies:
        for other in others:
            low, high = sorted((top(one), top(other)))
            root[high] = low
    found: dict[int, list[int]] = {}
    for place in range(len(names)):
        found.setdefault(top(place), []).append(place)
    return list(found.values())


def assign_groups(labels: Sequence[Label], groups: Sequence[Sequence[int]], shares: Mapping[str, float], seed: int) -> list[str]:
    """Assign groups to splits at random, with about the same fraction of every label; return the split of each image.

    A group is added to a split if this lowers the sum of (wanted - present)² / total over all labels. Every split gets at least
    one group, and every label keeps at least one group for training.

    Args:
        labels: the label of each image.
        groups: the positions of the images of each group.
        shares: the fraction of each split other than training.
        seed: the seed for the order of groups.

    Raises:
        DataError: there are too few groups, or they are too large.
    """
    counts = _counts(labels, groups)  # (G, L)
    total = np.maximum(counts.sum(axis=0), 1)
    left, order = counts.sum(axis=0), np.random.default_rng(seed).permutation(len(groups)).tolist()
    split_of: dict[int, str] = {}
    for split, share in shares.items():
        wanted = share * counts.sum(axis=0)
        missing = wanted.copy()

        def gain(group: int, missing: np.ndarray = missing) -> float:
            before, after = (float((rest**2 / total).sum()) for rest in (missing, missing - counts[group]))
            return before - after

        def take(group: int, split: str = split, missing: np.ndarray = missing) -> None:
            split_of[group] = split
            np.subtract(missing, counts[group], out=missing)
            np.subtract(left, counts[group], out=left)

        free = [group for group in order if group not in split_of]
        for group in free:
            if _may_go(left, counts[group]) and gain(group) > 0:
                take(group)
        if share and split not in split_of.values():
            allowed = [group for group in free if _may_go(left, counts[group])]
            if not allowed:
                what = f"{len(groups):,} groups cannot be divided between training, {' and '.join(shares)}"
                raise DataError(f"{what}: some label would have none for training", hint=HINT)
            take(max(allowed, key=gain))
    result = ["train"] * len(labels)
    for group, split in split_of.items():
        for place in groups[group]:
            result[place] = split
    return result


def _may_go(left: np.ndarray, counts: np.ndarray) -> bool:
    rest = left - counts
    return bool((rest[counts > 0] > 0).all() and rest.sum() > 0)


def _counts(labels: Sequence[Label], groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Count each label in each group: float64 (G, L); images without labels count as one more label."""
    own = [label if isinstance(label, tuple) else (label,) for label in labels]
    most = max((label for several in own for label in several), default=-1) + 1
    counts = np.zeros((len(groups), most + 1))
    for row, places in zip(counts, groups, strict=True):
        for place in places:
            row[list(own[place]) or [most]] += 1
    return counts


def groups_in_several_splits(splits: Mapping[str, Sequence[str]], groups: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the splits of each group that is in several splits; ``splits`` has the names of the images of each."""
    found: dict[str, list[str]] = {}
    for split, names in splits.items():
        for group in dict.fromkeys(groups[name] for name in names if groups.get(name)):
            found.setdefault(group, []).append(split)
    return {group: own for group, own in found.items() if len(own) > 1}


def group_notes(splits: Mapping[str, Sequence[str]], groups: Mapping[str, str]) -> list[str]:
    """Return a line with the number of groups in each split, or a warning if a group is in several; empty without groups."""
    if not groups:
        return []
    if several := groups_in_several_splits(splits, groups):
        group, own = next(iter(several.items()))
        count = f"{len(several):,} groups are" if len(several) > 1 else "1 group is"
        return [f"warning: {count} in several splits, such as {group} ({' and '.join(own)}): scores will be too good"]
    numbers = {split: len({groups[name] for name in names if groups.get(name)}) for split, names in splits.items()}
    return [f"groups, each in one split: {', '.join(f'{split} {number:,}' for split, number in numbers.items() if number)}"]
