"""A check of every image of a data set, with its faults and a summary."""

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.data.checks.found import Check, Places, path_in
from vitrail.data.checks.mirror_check import MirrorTest
from vitrail.data.checks.near_duplicates import MOST, miniature, near_duplicates, too_alike
from vitrail.data.groups import groups_in_several_splits
from vitrail.data.images.decode import decode_with_mode
from vitrail.data.items import Contents, Issue, Item, count_classes
from vitrail.data.readers.sources import read_data
from vitrail.data.readers.unlabelled import read_unlabelled
from vitrail.data.splits import names_of, to_divide
from vitrail.errors import DataError

IMBALANCE = 10
"""Ratio of the largest to the smallest class above which a notice is issued."""


def check_data(
    source: str | Path,
    *,
    labelled: bool = True,
    on_start: Callable[[int], None] | None = None,
    on_image: Callable[[int], None] | None = None,
) -> Check:
    """Read a data set and decode every image once; only a digest and a miniature of each image stay in memory.

    Images with equal decoded pixels are duplicates, so a copy in another lossless format is found, too. For images that are
    nearly the same see `vitrail.data.checks.near_duplicates`, for mirrored ones `vitrail.data.checks.mirror_check`.

    Args:
        source: as for `open_data`.
        labelled: if False, the source is read as by `open_unlabelled`.
        on_start: called with the number of images.
        on_image: called with 1 after every image.

    Raises:
        DataError: the source does not exist or cannot be read at all.
        ConfigError: a library for this kind of data is not installed.
    """
    return check_contents((read_data if labelled else read_unlabelled)(source), on_start=on_start, on_image=on_image)


def check_contents(
    contents: Contents, *, on_start: Callable[[int], None] | None = None, on_image: Callable[[int], None] | None = None
) -> Check:
    """Check contents that have been read; see `check_data`."""
    places = [(split, item) for split, items in contents.splits.items() for item in items]
    if on_start:
        on_start(len(places))
    sizes, modes = Counter[tuple[int, int]](), Counter[str]()
    unreadable: dict[str, Issue] = {}
    places_of: dict[bytes, Places] = {}
    profiles: dict[str, list[Item]] = {}
    small: Places = []
    miniatures: list[np.ndarray] = []
    mirrors = MirrorTest(contents)
    for split, item in places:
        try:
            image, mode, profile = decode_with_mode(item.image)
            sizes[image.size] += 1
            modes[mode] += 1
            if profile is not None:
                profiles.setdefault(profile, []).append(item)
            same = places_of.setdefault(_digest(image), [])
            same.append((split, item))
            if len(same) == 1 and (of_image := miniature(image)) is not None:
                small.append((split, item))
                miniatures.append(of_image)
            mirrors.add(item, image)
        except DataError as error:
            unreadable[item.name] = Issue("unreadable", path_in(item), error.what)
        if on_image:
            on_image(1)
    issues = [*contents.issues, *contents.warnings, *unreadable.values(), *_missing_classes(contents), *_split_groups(contents)]
    notices = [*contents.ignored, *_too_few_classes(contents), *_imbalance(contents), *mirrors.notices, *_profiles(profiles)]
    divided = to_divide(contents.splits)
    for same in places_of.values():
        if len(same) > 1:
            harmful = _splits_differ(same) or _labels_differ(same) or same[0][0] == divided
            (issues if harmful else notices).append(_same_picture(same, contents.classes, divided))
    alike, why_not = _nearly_the_same(small, miniatures)
    for group in alike:
        (issues if _splits_differ(group) else notices).append(_near_duplicate(group, contents, divided))
    if why_not:
        notices.append(Issue("near-duplicate", contents.source, why_not))
    return Check(contents, sizes, modes, issues, notices, alike, frozenset(unreadable))


def _nearly_the_same(places: Places, miniatures: list[np.ndarray]) -> tuple[list[Places], str | None]:
    """Return groups of nearly the same images; or no groups and the reason why there was no search."""
    if len(places) > MOST:
        return [], f"not searched for among more than {MOST:,} images"
    if not places or too_alike(stacked := np.stack(miniatures)):
        return [], "not searched for: all images are too similar to each other, as images of characters are" if places else None
    return [[places[place] for place in group] for group in near_duplicates(stacked)], None


def _digest(image: Image.Image) -> bytes:
    digest = hashlib.blake2b(repr(image.size).encode(), digest_size=16)
    digest.update(image.tobytes())
    return digest.digest()


def _labels_differ(places: Places) -> bool:
    return len({item.target for _, item in places}) > 1


def _splits_differ(places: Places) -> bool:
    return len({split for split, _ in places}) > 1


def _same_picture(places: Places, classes: list[str], divided: str | None) -> Issue:
    """Return the issue for an image that is stored several times: a conflict if its labels differ, else a duplicate."""
    (split, first), *others = places
    what = "the same image as " + ", ".join(path_in(item) for _, item in others) + _differences(places, classes)
    if split == divided and not _labels_differ(places) and not _splits_differ(places):
        what += "; keep one of them: copies in different files may be put into different splits"
    return Issue("conflict" if _labels_differ(places) else "duplicate", path_in(first), what)


def _near_duplicate(places: Places, contents: Contents, divided: str | None) -> Issue:
    (split, first), *others = places
    what = "nearly the same image as " + ", ".join(path_in(item) for _, item in others)
    what += _differences(places, contents.classes)
    groups = {contents.groups.get(item.name) for _, item in places}
    if split == divided and not _splits_differ(places) and (len(groups) > 1 or None in groups):
        what += "; they may be put into different splits, unless the column group of a table puts them into one group"
    return Issue("near-duplicate", path_in(first), what)


def _differences(places: Places, classes: list[str]) -> str:
    """Return the text on the splits and labels of an image that is stored several times; "" if they are the same."""
    what = ""
    if _splits_differ(places):
        what += "; in the splits " + ", ".join(dict.fromkeys(split for split, _ in places))
    if _labels_differ(places):
        labels = (" and ".join(classes[label] for label in item.labels) or "none" for _, item in places)
        what += "; labelled " + ", ".join(dict.fromkeys(labels))
    return what


def _missing_classes(contents: Contents) -> list[Issue]:
    return [
        Issue("missing-class", f"{split}/{name}", f"no images of the class {name!r} in the split {split!r}")
        for split, items in contents.splits.items()
        for name, count in zip(contents.classes, count_classes(items, len(contents.classes)), strict=True)
        if not count
    ]


def _split_groups(contents: Contents) -> list[Issue]:
    several = groups_in_several_splits(names_of(contents.splits), contents.groups)
    return [Issue("group", contents.source, f"{group} is in the splits {', '.join(own)}") for group, own in several.items()]


def _too_few_classes(contents: Contents) -> list[Issue]:
    if len(contents.classes) > 1 or contents.multi_label:
        return []
    what = f"{contents.classes[0]!r} is the only class" if contents.classes else "there is no class"
    return [Issue("one-class", contents.source, f"{what}; training needs two or more")]


def _imbalance(contents: Contents) -> list[Issue]:
    notices: list[Issue] = []
    for split in ("train", "all"):
        counts = [count for count in count_classes(contents.splits.get(split, []), len(contents.classes)) if count]
        if counts and max(counts) > IMBALANCE * min(counts):
            what = f"the classes have between {min(counts):,} and {max(counts):,} images; train with --balance"
            notices.append(Issue("imbalance", split, what))
    return notices


def _profiles(items: dict[str, list[Item]]) -> list[Issue]:
    notices: list[Issue] = []
    for name, (first, *rest) in items.items():
        more = f"and {len(rest):,} more: " if rest else ""
        what = f"{more}the colour profile {name!r} is not applied: pixel values are read as stored"
        notices.append(Issue("profile", path_in(first), what))
    return notices
