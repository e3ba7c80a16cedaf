"""A data set of captions: images, each with the sentences that people wrote about it."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vitrail.data.checks.duplicates import leaks, same_files
from vitrail.data.groups import group_notes
from vitrail.data.images.decode import Source
from vitrail.data.items import Data, Issue
from vitrail.data.splits import SHARES, Assignment, assign_splits, divided, named_apart, to_divide
from vitrail.data.text.tokens import Tokens
from vitrail.errors import DataError
from vitrail.plain_text import clean

_BEFORE_MARKS = re.compile(r"\s+([.,;:!?])")


@dataclass(frozen=True)
class Captioned:
    """An image and its captions."""

    name: str
    """The file below the data's folder."""
    image: Source
    target: tuple[str, ...]
    """The captions, at least one."""
    own_name: str | None = None
    """The name of the file, where `name` has the split before it because another split has a file of this name."""


@dataclass(frozen=True)
class CaptionContents:
    """A data set of captions as it is read, before it is split."""

    source: str
    """The ``--data`` argument that opens it again from anywhere."""
    splits: dict[str, list[Captioned]]
    """Its own splits; all images are under "all" where it has none."""
    issues: list[Issue] = field(default_factory=list)
    """Faults that prevent use."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of images that are left out, by the reason."""
    notes: list[str] = field(default_factory=list)
    """Lines on how tables were read."""
    groups: dict[str, str] = field(default_factory=dict)
    """The group of each image that has one, by its path: images of a group belong in one split."""


@dataclass(frozen=True)
class CaptionData(Data):
    """Images with captions in named splits. All captions of an image, and of copies of it, are in the same split."""

    source: str
    splits: dict[str, list[Captioned]]
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    notes: tuple[str, ...] = ()
    tokenizer: Tokens | None = None
    """Tokens of the captions, where they are chosen."""

    things = "images"

    def identity(self, item: Captioned) -> Any:
        return item.own_name or item.name, item.target

    @property
    def kind(self) -> dict[str, Any]:
        return {}

    @property
    def images(self) -> list[Source]:
        return [item.image for items in self.splits.values() for item in items]

    def without(self, names: Container[str]) -> "CaptionData":
        """Return the data without some images, by name; older runs hold names of files, which count in all splits."""
        splits = {
            split: [i for i in items if i.name not in names and i.own_name not in names] for split, items in self.splits.items()
        }
        return replace(self, splits=splits)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(items):,}" for split, items in self.splits.items())
        captions = sum(len(item.target) for items in self.splits.values() for item in items)
        return f"<CaptionData {self.source}: {captions:,} captions; {splits} images>"


def tidy(caption: str) -> str:
    """Return a caption as it is learned: `clean`, and without spaces before a full stop or a comma."""
    return _BEFORE_MARKS.sub(r"\1", clean(caption))


def paths_of(splits: Mapping[str, Sequence[Captioned]]) -> dict[str, list[str]]:
    """Return the paths of the images of each split."""
    return {split: [str(item.image) for item in items] for split, items in splits.items()}


def with_splits(
    contents: CaptionContents, seed: int, assignment: Assignment | None = None, shares: Mapping[str, float] = SHARES
) -> CaptionData:
    """Return a data set with the three splits: its own, or drawn with ``seed`` image by image, or those of an ``assignment``."""

    def assign(items: list[Captioned], shares: Mapping[str, float]) -> Assignment:
        copies = same_files([item.image for item in items])
        groups = {item.name: group for item in items if (group := contents.groups.get(str(item.image)))}
        return assign_splits([item.name for item in items], [0] * len(items), shares, seed, copies, groups)

    if any(contents.splits.get(split) for split in ("val", "test")):
        _require_no_leak(contents.source, contents.splits)
    made = divided(contents.splits, to_divide(contents.splits), assign, shares, assignment)
    notes = [*contents.notes, *(f"left out: {count:,} {reason}" for reason, count in contents.left_out.items() if count)]
    notes += group_notes(paths_of(made.splits), contents.groups)
    if made.added:
        notes.append(f"images added since the splits were made, which are in none: {made.added:,}")
    splits = named_apart(made.splits, lambda item, name: replace(item, name=name, own_name=item.name))
    return CaptionData(contents.source, splits, made.assignment, made.own, tuple(notes))


def _require_no_leak(source: str, splits: dict[str, list[Captioned]]) -> None:
    """Raise `DataError` for images that are in several splits."""
    images = ((split, item.name, item.image) for split, items in splits.items() for item in items)
    for (split, name), (other, copy) in leaks(images):
        what = f"the image {name} is in the {split} split, and the same is in {other} as {copy}"
        raise DataError(what, where=source, hint="take it out of one: a model knows what it has learned from")
