"""Splits for data without any: random and stratified, the same share of every class."""

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
"""Default shares of test and validation of a data set without splits of its own."""
RARE = 10
"""Least number of images with the same set of labels that are a stratum of their own."""

Assignment = Mapping[str, str]
"""The split of each image of a data set, by the image's name."""


def with_splits(
    contents: Contents, seed: int, assignment: Assignment | None = None, shares: Mapping[str, float] = SHARES
) -> ImageData:
    """Return a data set with the three splits: its own, or drawn with ``seed``, or those of ``assignment``.

    Data without splits of its own gives ``shares`` to test and validation. Of data with a training split and no validation, a
    part of the training images becomes validation.
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
    """True if validation or test are the data set's own."""
    added: int
    """Number of items that an earlier assignment lacks; they are in no split."""


def divided(
    found: Mapping[str, list[T]],
    split: str | None,
    assign: Callable[[list[T], Mapping[str, float]], Assignment],
    shares: Mapping[str, float],
    assignment: Assignment | None,
) -> Divided[T]:
    """Return the items of a data set in the three splits.

    Args:
        found: the items by the data set's own splits; under "all" where it has none.
        split: the one to divide, by `to_divide`; None for none.
        assign: gives shares of some items to other splits.
        shares: of test and validation; `SHARES` has those that are missing.
        assignment: repeats an earlier one.
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
    """Return the items under unique names: one that several splits use gets the name of its split in front, by ``rename``."""
    count = Counter(item.name for items in splits.values() for item in items)

    def apart(split: str, item: T) -> T:
        return rename(item, f"{split}/{item.name}") if count[item.name] > 1 else item

    return {split: [apart(split, item) for item in items] for split, items in splits.items()}


def to_divide(found: Mapping[str, list[Any]]) -> str | None:
    """Return the split that `divided` divides: "all" in data without splits, training where validation is missing."""
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
    """Assign images to splits at random, stratified: return the split of each image, by name.

    Of every class each split gets its share, rounded down or up. It is rounded by what the split is owed after the classes
    before, so that the splits as a whole get their shares, too. Every class keeps an image for training.

    ``copies`` are groups of images, by their index, that go to the same split, so that no picture is both trained on and tested
    on: a class gives less than its share where its groups do not fit in it. A group under several labels goes to training.

    In multi-label data the images with the same set of labels stand for a class, and all images whose set is rarer than
    `RARE` for one more. So a rare label may miss a split other than training, which has every label.

    With ``group_by_name`` a group and the copies of its images go to one split, see `assign_groups`.
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
    """Yield, of the images that are not trained on, one of each label of multi-label data that training lacks."""
    trained = [labels[i] for i in set(range(len(labels))) - set(tested)]
    missing = _labels_in(labels) - _labels_in(trained)
    for i in tested:
        if found := missing & _labels_in([labels[i]]):
            missing -= found
            yield i


def _labels_in(labels: Iterable[Label]) -> set[int]:
    return {label for of in labels if isinstance(of, tuple) for label in of}


def _as_many(groups: list[Sequence[int]], count: int) -> tuple[list[int], list[Sequence[int]]]:
    """Return as many images as fit into a number, by whole groups in their order, and the groups that are left."""
    taken: list[int] = []
    left = []
    for group in groups:
        if len(taken) + len(group) <= count:
            taken += group
        else:
            left.append(group)
    return taken, left


def _strata(labels: Sequence[Label]) -> np.ndarray:
    """Return the stratum of every image, of each of which every split gets its share: int64 (N,)."""
    count = Counter(label for label in labels if isinstance(label, tuple))
    if not count:
        return np.asarray(labels)
    number = {labels: i for i, labels in enumerate(sorted(labels for labels in count if count[labels] >= RARE))}
    return np.array([number.get(label, len(number)) for label in labels if isinstance(label, tuple)])


def share_of(items: Sequence[Item], share: float, seed: int) -> list[Item]:
    """Return a part of some images, the same share of every class and at least one; a smaller share is a part of a larger one.

    In multi-label data the classes are common sets of labels, and all rare ones together, as in `assign_splits`.
    """
    stratum = _strata([item.target for item in items]).tolist()
    count, seen = Counter(stratum), Counter[int]()
    kept = []
    for index in shuffled(len(items), seed, 0):
        seen[stratum[index]] += 1
        if seen[stratum[index]] <= max(1, round(share * count[stratum[index]])):
            kept.append(index)
    return [items[index] for index in sorted(kept)]
