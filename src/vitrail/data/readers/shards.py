"""Images in tar archives in WebDataset's layout: files of one sample have the same name up to the first dot."""

import json
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from PIL.ContainerIO import ContainerIO

from vitrail.data.images.decode import SUFFIXES
from vitrail.data.items import Contents, Issue, Named, splits_in, with_indices
from vitrail.data.readers.archives import entries, explained
from vitrail.errors import DataError
from vitrail.files import is_text, path_of
from vitrail.plain_text import clean

LABELS = (".cls", ".txt", ".json")
"""Suffixes of the label file, in order of precedence: ``.cls`` (a number or name), ``.txt`` (a name), ``.json``
(``{"label": …}``)."""
MAX_LABEL_BYTES = 2**16
MAX_ARCHIVES = 100_000


@dataclass(frozen=True)
class Member:
    """A file inside an archive, read at its offset without unpacking."""

    archive: str
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.archive}/{self.member}"

    def open(self) -> IO[bytes]:
        return ContainerIO(open(self.archive, "rb"), self.offset, self.size)


def read_shards(pattern: str) -> Contents:
    """Read the archives that match a pattern such as ``shards-{000..009}.tar``.

    The headers are read once, and each image when it is needed, in any order. The word train, val or test in an archive's name
    is its split; without one, the names of its parent folders are searched, up to the common parent of all archives.

    Raises:
        DataError: an archive is missing, damaged or compressed, or only some archives name a split. Faults of single samples
            are reported as issues of the contents.
    """
    pattern = os.path.abspath(path_of(pattern))
    archives = [Path(name) for name in expand(pattern)]
    root = os.path.commonpath([archive.parent for archive in archives])
    splits = {archive: _split(archive.relative_to(root)) for archive in archives}
    if "all" in splits.values() and len(set(splits.values())) > 1:
        bare = next(archive for archive in archives if splits[archive] == "all").relative_to(root)
        raise DataError(f"{bare} names no split, but others do", where=pattern, hint="put train, val or test in every name")
    issues: list[Issue] = []
    found: list[Named] = []
    for archive in archives:
        shard = archive.relative_to(root).with_suffix("")
        for key, files in _samples(archive).items():
            try:
                found.append(Named(splits[archive], f"{shard}/{key}", _image(files), (_label(files),)))
            except _SampleError as reason:
                issues.append(Issue(reason.kind, f"{archive}/{key}", str(reason)))
    if not found and not issues:
        raise DataError("no images found", where=pattern, hint="a sample is an image and its label: 0001.jpg and 0001.cls")
    return with_indices(f"wds:{pattern}", found, issues=issues)


def expand(pattern: str) -> list[str]:
    """Expand a pattern to names: ``{a,b}`` to a and b, ``{08..11}`` to 08, 09, 10 and 11.

    Raises:
        DataError: the braces cannot be parsed, or stand for no name or for too many.
    """
    start = pattern.find("{")
    if start < 0:
        return [pattern]
    depth, marks = 0, [start]
    for place in range(start, len(pattern)):
        depth += (pattern[place] == "{") - (pattern[place] == "}")
        if depth == 0 or (depth == 1 and pattern[place] == ","):
            marks.append(place)
        if depth == 0:
            break
    parts = [pattern[before + 1 : after] for before, after in pairwise(marks)]
    numbers = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", parts[0]) if len(parts) == 1 else None
    if depth or not (numbers or len(parts) > 1):
        raise DataError(f"cannot expand {pattern[start:]!r}", where=pattern, hint="write {000..009} or {a,b}")
    if numbers:
        span = range(int(numbers[1]), int(numbers[2]) + 1)
        choices = [f"{number:0{len(numbers[1])}d}" for number in span[: MAX_ARCHIVES + 1]]
    else:
        choices = [name for part in parts for name in expand(part)]
    rests = expand(pattern[marks[-1] + 1 :])
    if not 0 < len(choices) * len(rests) <= MAX_ARCHIVES:
        raise DataError(f"{pattern[start:]!r} stands for no name, or too many", where=pattern, hint="count from low to high")
    return [pattern[:start] + choice + rest for choice in choices for rest in rests]


def _split(archive: Path) -> str:
    """Return the split in an archive's name, else in the name of the nearest parent folder that has one, else "all"."""
    return next((split for part in (archive.stem, *archive.parts[-2::-1]) for split in splits_in(part)), "all")


class _SampleError(Exception):
    """A fault of a sample, with the kind of its issue."""

    def __init__(self, kind: str, what: str):
        self.kind = kind
        super().__init__(what)


def _samples(archive: Path) -> dict[str, dict[str, list[Member]]]:
    samples: dict[str, dict[str, list[Member]]] = {}
    if not os.path.isfile(archive):
        raise DataError(f"there is no archive {archive}", where="--data", hint="write wds:shards-{000..009}.tar")
    with explained(archive, hint="give complete archives that are not compressed"), open(archive, "rb") as file:
        for entry in entries(file, most=2 * os.path.getsize(archive)):  # the end is read twice
            folder, name = os.path.split(entry.name.removeprefix("./"))
            key, dot, ending = name.partition(".")
            if entry.isreg() and not entry.issparse() and key:
                member = Member(str(archive), entry.name, entry.offset_data, entry.size)
                samples.setdefault(os.path.join(folder, key), {}).setdefault(dot + ending.lower(), []).append(member)
    return samples


def _image(files: dict[str, list[Member]]) -> Member:
    images = [member for suffix in SUFFIXES for member in files.get(suffix, [])]
    if len(images) != 1:
        raise _SampleError("no-image", f"{len(images) or 'no'} images in the sample, which has {_names(files)}")
    return images[0]


def _label(files: dict[str, list[Member]]) -> str:
    suffix = next((suffix for suffix in LABELS if suffix in files), "")
    if not suffix:
        raise _SampleError("no-label", f"none of {', '.join(LABELS)} in the sample, which has {_names(files)}")
    if len(files[suffix]) > 1 or files[suffix][0].size > MAX_LABEL_BYTES:
        raise _SampleError("no-label", f"{files[suffix][0].member} appears twice, or is too long for a label")
    try:
        with files[suffix][0].open() as file:
            text = file.read().decode("utf-8-sig").strip()
        label = json.loads(text)["label"] if suffix == ".json" else text
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _SampleError("no-label", f"{files[suffix][0].member} holds no label") from None
    if isinstance(label, bool) or not isinstance(label, int | str) or not clean(str(label)) or not is_text(str(label)):
        raise _SampleError("no-label", f"{files[suffix][0].member} holds no label")
    return clean(str(label))


def _names(files: dict[str, list[Member]]) -> str:
    return ", ".join(member.member for members in files.values() for member in members)
