"""Results of the check of a data set: of any kind, and of images."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from vitrail.data.items import Contents, Issue, Item, count_classes

Places = list[tuple[str, Item]]
"""Images, each with its split."""
MAX_ROWS = 40
"""Largest number of classes listed in a table; more are summarized."""


class Found:
    """Base of the results of a check."""

    issues: list[Issue]
    """Faults, including those that training ignores; ``faults`` in the JSON document."""
    notices: list[Issue]
    most_issues: ClassVar[int | None] = None
    """Number of faults of each kind that a summary lists; None for all."""
    folder: Path | None = None
    """The folder of the HTML page, if one was written."""

    @property
    def listed(self) -> dict[str, Any]:
        """Return the faults and notices for the JSON document."""
        return {"faults": [vars(issue) for issue in self.issues], "notices": [vars(notice) for notice in self.notices]}

    def to_json(self) -> dict[str, Any]:
        """Return the complete result for a JSON document."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """Yield the lines of a readable summary."""
        raise NotImplementedError


@dataclass(frozen=True)
class Check(Found):
    """The result of a check of images.

    Kinds of issues: ``unreadable``; ``duplicate`` (the same image in several splits, or twice in data without splits);
    ``conflict`` (the same image with different labels); ``near-duplicate`` (nearly the same image in several splits);
    ``missing-class`` (a class without images in a split); ``group`` (a group in several splits); ``empty-class``, ``no-class``,
    ``no-label``, ``no-image``, ``bad-split``, ``missing-file``, ``repeated-row``, ``bad-row``, ``bad-name``, ``similar-classes``.

    Kinds of notices: ``duplicate`` and ``near-duplicate`` (within a split); ``mirror`` (images that should not be flipped);
    ``profile`` (a colour profile other than sRGB); ``imbalance``, ``one-class``, ``ignored``, ``no-split``, ``hidden``.
    """

    contents: Contents
    sizes: Counter[tuple[int, int]]
    """Number of images of each size (width, height), after rotation to upright."""
    modes: Counter[str]
    """Number of images of each colour mode, by Pillow's names."""
    issues: list[Issue]
    notices: list[Issue]
    alike: list[Places]
    """Groups of images that are nearly the same."""
    unreadable: frozenset[str]
    """The names of images that cannot be read."""
    folder: Path | None = None

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of images of each class in each split; data without splits has the split "all"."""
        classes = self.contents.classes
        return {
            split: dict(zip(classes, count_classes(items, len(classes)), strict=True))
            for split, items in self.contents.splits.items()
        }

    @property
    def images(self) -> int:
        return sum(map(len, self.contents.splits.values()))

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.contents.source,
            "images": self.images,
            "classes": self.contents.classes,
            "splits": self.counts,
            "sizes": size_range(self.sizes),
            "modes": dict(self.modes.most_common()),
            "notes": list(self.contents.lines),
            **self.listed,
            "near_duplicates": [[path_in(item) for _, item in group] for group in self.alike],
            **({} if self.folder is None else {"folder": str(self.folder)}),
        }

    def lines(self) -> Iterator[str]:
        classes = f" in {len(self.contents.classes):,} classes" if self.contents.classes else ""
        yield f"source   {self.contents.source}"
        yield f"images   {self.images:,}{classes}"
        for line in self.contents.lines:
            yield f"note     {line}"
        if self.sizes:
            yield size_line(self.sizes)
            yield "colours  " + ", ".join(f"{mode} {count:,}" for mode, count in self.modes.most_common())
        yield ""
        yield from self._class_lines()

    def _class_lines(self) -> Iterator[str]:
        counts, classes = self.counts, self.contents.classes
        rows = [(name, [of_split[name] for of_split in counts.values()]) for name in classes]
        if len(classes) > MAX_ROWS:
            columns = [sorted(of_split.values()) for of_split in counts.values()]
            rows = [("smallest class", [c[0] for c in columns]), ("largest class", [c[-1] for c in columns])]
        rows.append(("all", [len(items) for items in self.contents.splits.values()]))
        width = max(len(name) for name, _ in rows) + 2
        yield " " * width + "".join(f"{split:>10}" for split in counts)
        for name, numbers in rows:
            yield f"{name:<{width}}" + "".join(f"{number:>10,}" for number in numbers)


def size_line(sizes: Counter[tuple[int, int]]) -> str:
    """Return `size_range` as a line to print; there is at least one size."""
    of = size_range(sizes)
    ranges = ", ".join(f"{name} {by(of[name])}" for name in ("min", "median", "max"))
    return f"sizes    {of['distinct']:,} different; width×height {ranges}"


def size_range(sizes: Counter[tuple[int, int]]) -> dict[str, Any]:
    """Return the minimum, median and maximum of width and of height separately, and the number of distinct sizes."""
    if not sizes:
        return {"distinct": 0}
    sides = [sorted(side) for side in zip(*sizes.elements(), strict=True)]
    return {
        "min": [side[0] for side in sides],
        "median": [median(side) for side in sides],
        "max": [side[-1] for side in sides],
        "distinct": len(sizes),
    }


def by(sides: Sequence[float]) -> str:
    """Return width and height as text: 32×24."""
    return "×".join(f"{side:g}" for side in sides)


def path_in(item: Item) -> str:
    """Return the path of an image's file; without a file, the name of the image in the data set."""
    return str(item.image) if isinstance(item.image, Path) else getattr(item.image, "name", item.name)
