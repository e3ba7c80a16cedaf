"""What a data set is: labelled images in named splits, and what is wrong with it."""

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
"""The names of each split in all kinds of data, in small letters; ``restval`` is of Karpathy's files."""
SPLIT_OF_NAME = {name: split for split, names in NAMES_OF_SPLITS.items() for name in names}
_BEHIND_SPLITS = re.compile("(sets?|splits?|data|images?|imgs?)+$")
"""Words behind a split's name that say nothing: ``train_images``, ``testset``."""

Label = int | tuple[int, ...]
"""The index of a class; in multi-label data the indices of all that an image shows, ascending, possibly none."""


@dataclass(frozen=True)
class Item:
    """One image and its target."""

    name: str
    """Path below the data folder, or a name of the data set's own."""
    image: Source
    target: Any
    """JSON-able, and of a kind that the task knows: for classification a `Label`."""
    mask: Source | None = None
    """An indexed or grey PNG as large as the upright image, with a value for each of its pixels; None for none."""

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes of the image, one or several."""
        return self.target if isinstance(self.target, tuple) else (self.target,)


def count_classes(items: Iterable[Item], classes: int) -> list[int]:
    """Images of every class."""
    count = Counter(label for item in items for label in item.labels)
    return [count[label] for label in range(classes)]


@dataclass(frozen=True)
class Issue:
    """Something wrong with a data set: what kind of thing, where, and what exactly."""

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
    "no-class": "image{s} outside the folders of classes",
    "unlisted": "image{s} that no table names",
    "outside": "image{s} outside the splits",
    "empty-class": "folder{s} without images",
    "unreadable": "link{s} to no file",
}
"""What is said of things that are left out; other files go by their suffix."""
MOST_KINDS = 40
"""More kinds of them are counted."""
MOST_SHOWN = 50
"""Classes in a table of a notebook; more are counted."""


def count_by_kind(issues: Iterable[Issue]) -> str:
    """Return how many things of each kind are left out, the most frequent first: ``12 .txt, 3 .mp4``; "" for none."""
    count = Counter(issue.kind if issue.kind != "ignored" else Path(issue.path).suffix.lower() for issue in issues)
    often = sorted(count.items(), key=lambda pair: (-pair[1], not pair[0].startswith("."), natural_key(pair[0])))
    words = [f"{n:,} {LEFT_OUT.get(kind, kind).replace('{s}', 's' * (n > 1))}" for kind, n in often]
    rest = often[MOST_KINDS:]
    more = [f"{sum(n for _, n in rest):,} more of {len(rest):,} kinds"] if rest else []
    return ", ".join(words[:MOST_KINDS] + more)


def left_out_notes(issues: Iterable[Issue]) -> tuple[str, ...]:
    """Return the line that counts what is left out, by kind; nothing where nothing is."""
    kinds = count_by_kind(issues)
    return (f"left out: {kinds}",) if kinds else ()


@dataclass(frozen=True)
class Contents:
    """What a data set holds, as it is found, before it is split where it has no splits."""

    source: str
    """The ``--data`` argument that opens it again from anywhere."""
    classes: list[str]
    splits: dict[str, list[Item]]
    """Its own splits; all images are under "all" where it has none."""
    multi_label: bool = False
    issues: list[Issue] = field(default_factory=list)
    """What prevents use: nothing is opened while there is one."""
    warnings: list[Issue] = field(default_factory=list)
    """What a check reports and training passes over: an empty class, an image of no class."""
    ignored: list[Issue] = field(default_factory=list)
    """Files and folders that are no part of the data."""
    notes: tuple[str, ...] = ()
    """What one should know of how it was read, a line each."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The group of each image that has one, by name: images of a group belong in one split."""

    @property
    def told(self) -> tuple[str, ...]:
        """The notes, and a line of what was left out: ``left out: 12 .txt, 3 .mp4``."""
        return (*self.notes, *left_out_notes([*self.ignored, *self.warnings]))

    @property
    def has_splits(self) -> bool:
        """Whether the data set has splits of its own."""
        return "all" not in self.splits


@dataclass(frozen=True)
class Named:
    """One image with its classes by name, as tables and archives give them."""

    split: str
    """One of `SPLITS`, or "all" in data that has none."""
    name: str
    image: Source
    labels: tuple[str, ...]
    group: str = ""
    """Images of a group belong in one split."""


def with_indices(
    source: str,
    found: list[Named],
    *,
    classes: list[str] | None = None,
    multi_label: bool = False,
    issues: list[Issue],
    notes: tuple[str, ...] = (),
) -> Contents:
    """The contents of a data set whose images are labelled by name; its classes sort naturally unless they are given."""
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
    """The ``--data`` argument that opens it again from anywhere."""
    splits: dict[str, list[Any]]
    assignment: dict[str, str] | None
    """Which split each item was assigned to, where the data set has no splits; a run keeps it."""
    notes: tuple[str, ...]
    """What one should know of how it was read and what was left out, a line each."""

    things: ClassVar[str]
    """What its items are."""
    multi_label: bool = False
    """Whether an item may have several labels, or none."""

    def tell(self, note: Note) -> None:
        """Give every note to a function that shows it."""
        for line in self.notes:
            note(line)

    def split(self, name: str) -> list[Any]:
        """The items of one split, or of all of them for "all"; raises `DataError` where there are none."""
        items = [i for s in self.splits.values() for i in s] if name == "all" else self.splits.get(name, [])
        if not items:
            raise DataError(
                f"no {self.things} in the split {name!r}",
                where=self.source,
                hint=f"splits here: {', '.join([*(s for s in self.splits if self.splits[s]), 'all'])}",
            )
        return items

    @property
    def evaluation_split(self) -> str:
        """The split that reports are made on: test, else validation, else everything."""
        return next((s for s in ("test", "val") if self.splits.get(s)), "all")

    def images_of(self, split: str) -> dict[str, Source]:
        """What the items of a split are read from, each image once, by the names that it is told of by."""
        return {item.name: item.image for item in self.splits[split]}

    def identity(self, item: Any) -> Any:
        """All of an item that a run's course depends on, JSON-able."""
        raise NotImplementedError

    @property
    def kind(self) -> dict[str, Any]:
        """What else a run's course depends on, JSON-able."""
        raise NotImplementedError

    @property
    def images(self) -> list[Source]:
        """What its items are read from later; none where they hold all of themselves."""
        return []


@dataclass(frozen=True)
class ImageData(Data):
    """A data set: its classes in order of their index, and its splits."""

    source: str
    classes: list[str]
    splits: dict[str, list[Item]]
    assignment: dict[str, str] | None = None
    """Which split each image was assigned to, where the data set has no splits; a run keeps it."""
    has_splits: bool = True
    """Whether the data set has a test or validation split of its own; a flat folder has not."""
    multi_label: bool = False
    """Whether an image may show several classes, or none."""
    notes: tuple[str, ...] = ()
    """What one should know of how it was read and what was left out, a line each."""

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
        """The data without some images, by name."""
        return replace(self, splits={split: [i for i in items if i.name not in names] for split, items in self.splits.items()})

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(items):,}" for split, items in self.splits.items())
        return f"<ImageData {self.source}: {len(self.classes):,} classes; {splits} images>"

    def _repr_html_(self) -> str:
        """What a notebook shows: images of every class in each split."""
        counts = [self.counts(split) for split in self.splits]
        rows = [(name, *numbers) for name, *numbers in zip(self.classes, *counts, strict=True)]
        more = f"and {len(rows) - MOST_SHOWN:,} more classes" if len(rows) > MOST_SHOWN else ""
        return table(repr(self)[1:-1], rows[:MOST_SHOWN], head=("class", *self.splits), below=more)

    def counts(self, split: str) -> list[int]:
        """Images of every class in a split; one that shows several classes counts for each."""
        return count_classes(self.splits.get(split, []), len(self.classes))


def split_of(name: str) -> str | None:
    """Return the split that a folder, a file, a cell or a word calls by its name; None where it names none.

    Capitals, digits, blanks, hyphens and underscores do not count: ``Hold-out``, ``train2017`` and ``Test Set`` are splits.
    """
    return SPLIT_OF_NAME.get(_BEHIND_SPLITS.sub("", re.sub(r"[\W\d_]+", "", name.lower())))


def splits_by_name(names: Iterable[str]) -> dict[str, str]:
    """Return the split of each name that is one; beside ``test`` itself, ``test2016`` is none."""
    names = list(names)
    exact = {split for name in names if (split := SPLIT_OF_NAME.get(name.lower()))}
    found = {name: split for name in names if (split := split_of(name))}
    return {name: split for name, split in found.items() if split not in exact or name.lower() in SPLIT_OF_NAME}


def splits_in(name: str) -> list[str]:
    """Return the splits that words of a file's name call, one after the other: ``captions_train2017``, ``my-hold-out``."""
    words = re.findall(r"[^\W\d_]+", name)
    found = filter(None, map(split_of, [*words, *map("".join, pairwise(words))]))
    return list(dict.fromkeys(found))


def pooled_notes(folders: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each split that has several names in the data, given as pairs of split and name."""
    names: dict[str, list[str]] = {}
    for split, name in dict.fromkeys(folders):
        names.setdefault(split, []).append(name)
    return [f"the split {split} is made of {' and '.join(own)}" for split, own in names.items() if len(own) > 1]


def natural_key(name: str) -> list[tuple[int, Decimal, str]]:
    """Sorts numbers inside names by value: ``2`` before ``10``."""
    return [(0, Decimal(part), part) if part.isdecimal() else (1, Decimal(), part) for part in re.findall(r"\d+|\D+", name)]
