"""Data sets: items in named splits, and the issues of reading them."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal  # which unlike int reads numbers of any length
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from vitrail.data.images.decode import Source
from vitrail.errors import DataError
from vitrail.runtime.notebook import table
from vitrail.runtime.observer import Note

SPLITS = ("train", "val", "test")
NAMES_OF_SPLITS = {
    "train": ("train", "training", "trn", "restval"),
    "val": ("val", "valid", "validation", "validate", "dev", "devel", "development", "eval", "evaluation"),
    "test": ("test", "tests", "testing", "tst", "holdout", "heldout"),
}
"""Lower-case names of each split, in all kinds of data; ``restval`` is from Karpathy's files."""
SPLIT_OF_NAME = {name: split for split, names in NAMES_OF_SPLITS.items() for name in names}
_BEHIND_SPLITS = re.compile("(sets?|splits?|data|images?|imgs?)+$")
"""Words after a split's name that have no meaning: ``train_images``, ``testset``."""

Label = int | tuple[int, ...]
"""The index of a class; in multi-label data the ascending indices of all labels of an image, possibly none."""


@dataclass(frozen=True)
class Item:
    """One image and its target."""

    name: str
    """Path relative to the data folder, or a name from the data set."""
    image: Source
    target: Any
    """The target, serializable as JSON; its type depends on the task: for classification a `Label`."""
    mask: Source | None = None
    """An indexed or grey PNG of the upright image's size, with a value for each pixel; None without a mask."""

    @property
    def labels(self) -> tuple[int, ...]:
        return self.target if isinstance(self.target, tuple) else (self.target,)


def count_classes(items: Iterable[Item], classes: int) -> list[int]:
    """Return the number of images of each class."""
    count = Counter(label for item in items for label in item.labels)
    return [count[label] for label in range(classes)]


@dataclass(frozen=True)
class Issue:
    """A fault or notice about a data set: its kind, its path, and its message."""

    kind: str
    path: str
    what: str


LEFT_OUT = {
    "": "file{s} without a suffix",
    "hidden": "hidden or a system's own",
    "run": "run{s}",
    "sweep": "sweep{s}",
    "linked": "linked folder{s}",
    "no-split": "folder{s} beside the splits",
    "no-image": "mask{s} without an image",
    "no-class": "image{s} outside the class folders",
    "unlisted": "image{s} that no table names",
    "outside": "image{s} outside the splits",
    "empty-class": "folder{s} without images",
    "unreadable": "broken link{s}",
}
"""Words for kinds of files and folders that are left out; other files are named by their suffix."""
MOST_KINDS, MOST_SHOWN = 40, 50
"""Limits: kinds of files in the line on files left out, and classes in a notebook's table; the rest is counted."""


def count_by_kind(issues: Iterable[Issue]) -> str:
    """Return the number of issues of each kind as text, the most frequent first: ``12 .txt, 3 .mp4``; "" for none."""
    count = Counter(issue.kind if issue.kind != "ignored" else Path(issue.path).suffix.lower() for issue in issues)
    often = sorted(count.items(), key=lambda pair: (-pair[1], not pair[0].startswith("."), natural_key(pair[0])))
    words = [f"{n:,} {LEFT_OUT.get(kind, kind).replace('{s}', 's' * (n > 1))}" for kind, n in often]
    rest = often[MOST_KINDS:]
    more = [f"{sum(n for _, n in rest):,} more of {len(rest):,} kinds"] if rest else []
    return ", ".join(words[:MOST_KINDS] + more)


def left_out_notes(issues: Iterable[Issue]) -> tuple[str, ...]:
    """Return a line that counts the files left out, by kind; empty if there are none."""
    kinds = count_by_kind(issues)
    return (f"left out: {kinds}",) if kinds else ()


@dataclass(frozen=True)
class Contents:
    """The content of a data set after reading, before data without splits is split."""

    source: str
    """The ``--data`` argument that opens the data set from any folder."""
    classes: list[str]
    splits: dict[str, list[Item]]
    """The splits of the data set; without splits, all images are in "all"."""
    multi_label: bool = False
    issues: list[Issue] = field(default_factory=list)
    """Faults that prevent the data from being opened."""
    warnings: list[Issue] = field(default_factory=list)
    """Faults that training ignores, such as an empty class or an image outside the class folders."""
    ignored: list[Issue] = field(default_factory=list)
    """Files and folders that do not belong to the data."""
    notes: tuple[str, ...] = ()
    """Lines on how it was read."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The group of each image that has one, by the image's name; a group must not be divided between splits."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the notes, and a line that counts files left out: ``left out: 12 .txt, 3 .mp4``."""
        return (*self.notes, *left_out_notes([*self.ignored, *self.warnings]))


@dataclass(frozen=True)
class Named:
    """An image with the names of its classes, as read from a table or archive."""

    split: str
    """One of `SPLITS`, or "all" in data without splits."""
    name: str
    image: Source
    labels: tuple[str, ...]
    group: str = ""
    """The image's group; "" for none."""


def with_indices(
    source: str,
    found: list[Named],
    *,
    classes: list[str] | None = None,
    multi_label: bool = False,
    issues: list[Issue],
    notes: tuple[str, ...] = (),
) -> Contents:
    """Return the contents of a data set from images with class names; by default the classes are all names, sorted naturally."""
    if classes is None:
        classes = sorted({label for one in found for label in one.labels}, key=natural_key)
    index = {name: i for i, name in enumerate(classes)}
    splits: dict[str, list[Item]] = {split: [] for split in (*SPLITS, "all") if any(one.split == split for one in found)}
    for one in found:
        labels = tuple(sorted(index[label] for label in one.labels))
        splits[one.split].append(Item(one.name, one.image, labels if multi_label else labels[0]))
    groups = {one.name: one.group for one in found if one.group}
    return Contents(source, classes, splits, multi_label, issues, notes=notes, groups=groups)


class Data:
    """A data set: items in named splits."""

    source: str
    """The ``--data`` argument that opens the data set from any folder."""
    splits: dict[str, list[Any]]
    assignment: dict[str, str] | None
    """The split of each item by name, for data that was split here; a run saves it. None for data with its own splits."""
    notes: tuple[str, ...]
    """Lines on how it was read and what was left out."""

    things: ClassVar[str]
    """Plural word for its items in messages."""
    multi_label: bool = False
    """True if an item may have several labels, or none."""

    def tell(self, note: Note) -> None:
        """Pass every note to ``note``."""
        for line in self.notes:
            note(line)

    def split(self, name: str) -> list[Any]:
        """Return the items of a split, or of all splits for "all"; raises `DataError` if there are none."""
        items = [i for s in self.splits.values() for i in s] if name == "all" else self.splits.get(name, [])
        if not items:
            hint = f"splits here: {', '.join([*(s for s in self.splits if self.splits[s]), 'all'])}"
            raise DataError(f"no {self.things} in the split {name!r}", where=self.source, hint=hint)
        return items

    @property
    def evaluation_split(self) -> str:
        """Return the name of the split for evaluation: test, else val, else all."""
        return next((s for s in ("test", "val") if self.splits.get(s)), "all")

    def images_of(self, split: str) -> dict[str, Source]:
        """Return the distinct images of a split, by the names that messages use."""
        return {item.name: item.image for item in self.splits[split]}

    def identity(self, item: Any) -> Any:
        """Return the parts of an item that determine a run's result, serializable as JSON."""
        raise NotImplementedError

    @property
    def kind(self) -> dict[str, Any]:
        """Return other properties of the data that determine a run's result, serializable as JSON."""
        raise NotImplementedError

    @property
    def images(self) -> list[Source]:
        """Return the sources that are read during training; empty if items hold their content."""
        return []


@dataclass(frozen=True)
class ImageData(Data):
    """A data set of images: its classes in the order of their indices, and its splits."""

    source: str
    classes: list[str]
    splits: dict[str, list[Item]]
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    """True if the source itself has a test or validation split; False for data that was split here."""
    multi_label: bool = False
    notes: tuple[str, ...] = ()
    """Lines on how it was read and what was left out."""

    things = "images"

    def identity(self, item: Item) -> Any:
        return item.name, item.target

    @property
    def kind(self) -> dict[str, Any]:
        return {"classes": self.classes, "multi_label": self.multi_label}

    @property
    def images(self) -> list[Source]:
        items = [item for split in self.splits.values() for item in split]
        return [item.image for item in items] + [item.mask for item in items if item.mask is not None]

    def without(self, names: Container[str]) -> "ImageData":
        """Return the data without the images of these names."""
        return replace(self, splits={split: [i for i in items if i.name not in names] for split, items in self.splits.items()})

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(items):,}" for split, items in self.splits.items())
        return f"<ImageData {self.source}: {len(self.classes):,} classes; {splits} images>"

    def _repr_html_(self) -> str:
        counts = [self.counts(split) for split in self.splits]
        rows = [(name, *numbers) for name, *numbers in zip(self.classes, *counts, strict=True)]
        more = f"and {len(rows) - MOST_SHOWN:,} more classes" if len(rows) > MOST_SHOWN else ""
        return table(repr(self)[1:-1], rows[:MOST_SHOWN], head=("class", *self.splits), below=more)

    def counts(self, split: str) -> list[int]:
        """Return the number of images of each class in a split; an image with several labels counts for each."""
        return count_classes(self.splits.get(split, []), len(self.classes))


def split_of(name: str) -> str | None:
    """Return the split that a name means (of a folder, a file or a cell); None for any other name.

    Case, digits, blanks, hyphens and underscores are ignored: ``Hold-out``, ``train2017`` and ``Test Set`` are splits.
    """
    return SPLIT_OF_NAME.get(_BEHIND_SPLITS.sub("", re.sub(r"[\W\d_]+", "", name.lower())))


def splits_by_name(names: Iterable[str]) -> dict[str, str]:
    """Return the split of each name that means one. If the exact name ``test`` is there, ``test2016`` does not count."""
    names = list(names)
    exact = {split for name in names if (split := SPLIT_OF_NAME.get(name.lower()))}
    found = {name: split for name in names if (split := split_of(name))}
    return {name: split for name, split in found.items() if split not in exact or name.lower() in SPLIT_OF_NAME}


def splits_in(name: str) -> list[str]:
    """Return the splits that are words in a file's name, in order: train of ``captions_train2017``, test of ``my-hold-out``."""
    words = re.findall(r"[^\W\d_]+", name)
    found = filter(None, map(split_of, [*words, *map("".join, pairwise(words))]))
    return list(dict.fromkeys(found))


def pooled_notes(folders: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each split that is made of several folders; ``folders`` are pairs of a split and a folder's name."""
    names: dict[str, list[str]] = {}
    for split, name in dict.fromkeys(folders):
        names.setdefault(split, []).append(name)
    return [f"the split {split} is made of {' and '.join(own)}" for split, own in names.items() if len(own) > 1]


def natural_key(name: str) -> list[tuple[int, Decimal, str]]:
    """Return a key that sorts numbers inside names by value: ``2`` before ``10``."""
    return [(0, Decimal(part), part) if part.isdecimal() else (1, Decimal(), part) for part in re.findall(r"\d+|\D+", name)]
