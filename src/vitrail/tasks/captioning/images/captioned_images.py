"""A data set of captions: images, each with one or several sentences."""

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
    """Path of the file, relative to the data's folder."""
    image: Source
    target: tuple[str, ...]
    """The captions, at least one."""
    own_name: str | None = None
    """The file's name if `name` has the split as a prefix, because several splits have a file of this name; else None."""


@dataclass(frozen=True)
class CaptionContents:
    """A data set of captions as read from files, before the split."""

    source: str
    """The ``--data`` argument that opens it again from anywhere."""
    splits: dict[str, list[Captioned]]
    """The splits in the files; all images are under "all" if there are none."""
    issues: list[Issue] = field(default_factory=list)
    """Faults that prevent use."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of images that are left out, by reason."""
    notes: list[str] = field(default_factory=list)
    """Notes on how tables were read."""
    groups: dict[str, str] = field(default_factory=dict)
    """Path of an image to its group, if it has one; all images of a group belong in the same split."""


@dataclass(frozen=True)
class CaptionData(Data):
    """Images with captions in named splits. All captions of an image, and of copies of it, are in the same split."""

    source: str
    splits: dict[str, list[Captioned]]
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    notes: tuple[str, ...] = ()
    tokenizer: Tokens | None = None
    """Tokens of the captions, once they are chosen."""

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
        """Return the data without the images of these names; a file's own name, as in older runs, matches in every split."""
        splits = {
            split: [i for i in items if i.name not in names and i.own_name not in names] for split, items in self.splits.items()
        }
        return replace(self, splits=splits)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(items):,}" for split, items in self.splits.items())
        captions = sum(len(item.target) for items in self.splits.values() for item in items)
        return f"<CaptionData {self.source}: {captions:,} captions; {splits} images>"


def tidy(caption: str) -> str:
    """Return a caption as it is used in training: after `clean`, and without spaces before punctuation."""
    return _BEFORE_MARKS.sub(r"\1", clean(caption))


def paths_of(splits: Mapping[str, Sequence[Captioned]]) -> dict[str, list[str]]:
    """Return the paths of the images of each split."""
    return {split: [str(item.image) for item in items] for split, items in splits.items()}


def with_splits(
    contents: CaptionContents, seed: int, assignment: Assignment | None = None, shares: Mapping[str, float] = SHARES
) -> CaptionData:
    """Return a data set with three splits: its own, those of an ``assignment``, or splits drawn by image with ``seed``."""

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
        notes.append(f"images added since the splits were made, which are in no split: {made.added:,}")
    splits = named_apart(made.splits, lambda item, name: replace(item, name=name, own_name=item.name))
    return CaptionData(contents.source, splits, made.assignment, made.own, tuple(notes))


def _require_no_leak(source: str, splits: dict[str, list[Captioned]]) -> None:
    """Raise `DataError` for images that are in several splits."""
    images = ((split, item.name, item.image) for split, items in splits.items() for item in items)
    for (split, name), (other, copy) in leaks(images):
        what = f"the image {name} is in the {split} split, and the same is in {other} as {copy}"
        raise DataError(what, where=source, hint="remove it from one split: a model knows its training images")
