"""Random splits for data without splits, stratified: each split gets the same fraction of every class."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from vitrail.data.checks.duplicates import same_files
from vitrail.data.groups import assign_groups, group_notes, joined_groups
from vitrail.data.items import SPLITS, Contents, ImageData, Item, Label
from vitrail.data.loading.sampler import shuffled

SHARES = {"test": 0.2, "val": 0.1}
"""Default fractions of the test and validation split of data without splits."""
RARE = 10
"""Least number of images with the same set of labels for a separate stratum."""

Assignment = Mapping[str, str]
"""The split of each image of a data set, by the image's name."""


def with_splits(
    contents: Contents, seed: int, assignment: Assignment | None = None, shares: Mapping[str, float] = SHARES
) -> ImageData:
    """Return a data set with three splits: those of the contents, or of ``assignment``, or random ones by ``seed``.

    Data without splits is split by the fractions ``shares``. Data with a training split and no validation split gets one from
    the training images.
    """

    def assign(items: list[Item], shares: Mapping[str, float]) -> Assignment:
        copies = same_files([item.image for item in items])
        names, labels = [i.name for i in items], [i.target for i in items]
        return assign_splits(names, labels, shares, seed, copies, contents.groups)

    made = divided(contents.splits, to_divide(contents.splits), assign, shares, assignment)
    notes = (*contents.lines, *group_notes(names_of(made.splits), contents.groups))
    if made.added:
        notes = (*notes, f"images added since the splits were made, which are in none: {made.added:,}")
    return ImageData(contents.source, contents.classes, made.splits, made.assignment, made.own, contents.multi_label, notes)


class HasName(Protocol):
    """An item of any data set."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=HasName)


class Divided(NamedTuple, Generic[T]):
    """The three splits of a data set."""

    splits: dict[str, list[T]]
    assignment: dict[str, str] | None
    own: bool
    """True if the source itself has a validation or test split."""
    added: int
    """Number of items that are missing in an earlier assignment, and so are in no split."""


def divided(
    found: Mapping[str, list[T]],
    split: str | None,
    assign: Callable[[list[T], Mapping[str, float]], Assignment],
    shares: Mapping[str, float],
    assignment: Assignment | None,
) -> Divided[T]:
    """Divide the items of a data set into the three splits.

    Args:
        found: the items of each split in the source; "all" for data without splits.
        split: the split to divide, from `to_divide`; None if nothing is to be divided.
        assign: a function from items and fractions to the split of each item.
        shares: the fractions of test and validation; missing ones are those of `SHARES`.
        assignment: an earlier assignment to repeat.
    """
    splits = {name: list(found.get(name, [])) for name in SPLITS}
    own, assigned, added = bool(splits["val"] or splits["test"]), None, 0
    if split:
        items, splits["train"] = found[split], []
        wanted = {name: shares.get(name, share) for name, share in SHARES.items() if name == "val" or split == "all"}
        assigned = dict(assign(items, wanted) if assignment is None else assignment)
        for item in items:
            if item.name in assigned:
                splits[assigned[item.name]].append(item)
        added = sum(item.name not in assigned for item in items)
    return Divided(splits, assigned, own, added)


def names_of(splits: Mapping[str, Sequence[T]]) -> dict[str, list[str]]:
    """Return the names of the items of each split."""
    return {split: [item.name for item in items] for split, items in splits.items()}


def named_apart(splits: Mapping[str, Sequence[T]], rename: Callable[[T, str], T]) -> dict[str, list[T]]:
    """Return the items with unique names: a name in several splits is prefixed by the split, with the function ``rename``."""
    count = Counter(item.name for items in splits.values() for item in items)

    def apart(split: str, item: T) -> T:
        return rename(item, f"{split}/{item.name}") if count[item.name] > 1 else item

    return {split: [apart(split, item) for item in items] for split, items in splits.items()}


def to_divide(found: Mapping[str, list[Any]]) -> str | None:
    """Return the split to divide: "all" for data without splits, "train" if there is no validation split, else None."""
    if "all" in found:
        return "all"
    return "train" if found.get("train") and not found.get("val") else None


def assign_splits(
    names: list[str],
    labels: Sequence[Label],
    shares: Mapping[str, float],
    seed: int,
    copies: Sequence[Sequence[int]] = (),
    group_by_name: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Assign images to splits at random, stratified; return the split of each image, by name.

    Each split gets its fraction of every class, rounded down or up. Rounding errors are carried over from class to class, so that
    the total size of each split is right, too. Every class keeps at least one image for training.

    ``copies`` are groups of indices of identical images. A group goes to one split, so that no image is in training and in the
    test; a class may give less than its fraction if its groups do not fit. A group with different labels goes to training.

    In multi-label data, images with the same set of labels count as a class, and all images with rarer sets than `RARE` as one
    more class. So training has every label, but a rare label may be missing in another split.

    With ``group_by_name``, each group and the copies of its images go to one split; see `assign_groups`.
    """
    if group_by_name:
        together = joined_groups(names, group_by_name, copies)
        return dict(zip(names, assign_groups(labels, together, shares, seed), strict=True))
    random = np.random.default_rng(seed)
    stratum = _strata(labels)
    group_of = {group[0]: group for group in copies if len({labels[place] for place in group}) == 1}
    whole = {place: group for group in group_of.values() for place in group}
    followers = np.isin(np.arange(len(names)), [place for group in copies for place in group if place not in group_of])
    owed = {split: math.ceil(share * len(names)) - share * len(names) for split, share in shares.items()}
    result = dict.fromkeys(names, "train")
    for value in np.unique(stratum):
        groups = [group_of.get(i, [i]) for i in random.permutation(np.flatnonzero((stratum == value) & ~followers)).tolist()]
        size = int(np.count_nonzero(stratum == value))
        for split, share in shares.items():
            fair = share * size
            owed[split] += fair
            most = sum(map(len, groups)) - 1
            count = min(max(round(owed[split]), math.floor(fair)), math.floor(fair) + 1, most)
            taken, groups = _as_many(groups, count)
            owed[split] -= len(taken)
            result.update({names[i]: split for i in taken})
    tested = [i for i in random.permutation(len(names)).tolist() if result[names[i]] != "train"]
    for i in _without_training(labels, tested):
        result.update({names[place]: "train" for place in whole.get(i, [i])})
    return result


def _without_training(labels: Sequence[Label], tested: list[int]) -> Iterator[int]:
    """Yield one image of ``tested`` for each label of multi-label data that is missing in training."""
    trained = [labels[i] for i in set(range(len(labels))) - set(tested)]
    missing = _labels_in(labels) - _labels_in(trained)
    for i in tested:
        if found := missing & _labels_in([labels[i]]):
            missing -= found
            yield i


def _labels_in(labels: Iterable[Label]) -> set[int]:
    return {label for of in labels if isinstance(of, tuple) for label in of}


def _as_many(groups: list[Sequence[int]], count: int) -> tuple[list[int], list[Sequence[int]]]:
    """Take groups in order while at most ``count`` images are taken; return these images, and the groups that remain."""
    taken: list[int] = []
    left = []
    for group in groups:
        if len(taken) + len(group) <= count:
            taken += group
        else:
            left.append(group)
    return taken, left


def _strata(labels: Sequence[Label]) -> np.ndarray:
    """Return the number of each image's stratum, int64 (N,): its class, or in multi-label data its set of labels."""
    count = Counter(label for label in labels if isinstance(label, tuple))
    if not count:
        return np.asarray(labels)
    number = {labels: i for i, labels in enumerate(sorted(labels for labels in count if count[labels] >= RARE))}
    return np.array([number.get(label, len(number)) for label in labels if isinstance(label, tuple)])


def share_of(items: Sequence[Item], share: float, seed: int) -> list[Item]:
    """Return a random fraction ``share`` of every class, at least one image each; a smaller fraction is a subset of a larger one.

    In multi-label data the classes are frequent sets of labels, and all rare sets together, as in `assign_splits`.
    """
    stratum = _strata([item.target for item in items]).tolist()
    count, seen = Counter(stratum), Counter[int]()
    kept = []
    for index in shuffled(len(items), seed, 0):
        seen[stratum[index]] += 1
        if seen[stratum[index]] <= max(1, round(share * count[stratum[index]])):
            kept.append(index)
    return [items[index] for index in sorted(kept)]
