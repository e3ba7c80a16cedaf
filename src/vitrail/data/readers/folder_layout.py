"""Ambiguous folder layouts: they are refused, since a wrong reading would train without any error."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from vitrail.data.items import SPLIT_OF_NAME, Issue, natural_key, splits_by_name, splits_in
from vitrail.data.readers.table import TABLE
from vitrail.data.readers.tree import shown
from vitrail.errors import DataError
from vitrail.files import read_lines
from vitrail.plain_text import clean

CLASSES = "classes.txt"
"""File with the names of the classes, one on each line; it decides between two readings of the folders."""

Images = Mapping[Path, list[Path]]
"""The images below each folder that could be a class."""


class Inside(NamedTuple):
    """The subfolders of the possible class folders, at the first depth where their names differ."""

    way: tuple[str, ...]
    """Names of the folders between, which are the same everywhere; usually empty."""
    parents: dict[str, set[str]]
    """For each subfolder's name, the names of the possible class folders that contain it."""
    images: Counter[str]
    """For each subfolder's name, the number of images."""


def way_to_classes(root: Path, images: Images, *, flat: bool) -> tuple[str, ...] | None:
    """Return None if the folders of ``images`` are the classes, else the path from them to the parents of the class folders.

    The path is a tuple of folder names; ``()`` means that the class folders are directly in the folders of ``images``.

    Args:
        root: the folder of the data.
        images: the images by folder; with several splits, folders have the same name.
        flat: True for data without splits.

    Raises:
        DataError: the folders can be read in two ways, or in an implausible one, and `CLASSES` does not name the classes.
    """
    outer = _sorted({folder.name for folder, found in images.items() if found})
    named = _named(root)
    if not outer or _is_named(named, outer):
        return None
    inside = _inside(images)
    splits = splits_by_name(outer)
    exact = any(name.lower() in SPLIT_OF_NAME for name in outer)
    if len(splits) == len(outer) and (exact or len(set(splits.values())) > 1):  # not for "Test 1" and "Test 2", which are classes
        if not flat and inside.images:  # a split folder inside a split folder: train/train/cat
            return inside.way
        raise _unsorted_splits(root, outer)
    most = sum(map(len, images.values())) / 2
    if len(outer) == 1:
        (holder, *others) = [folder for folder, found in images.items() if found]
        if inside.images.total() > most or (holder / TABLE).is_file():
            raise _too_deep(root, holder, inside, others)
        return None
    shared = [name for name, parents in inside.parents.items() if len(parents) > 1]
    if sum(inside.images[name] for name in shared) <= most:
        return None
    if _is_named(named, inside.parents):
        return inside.way
    raise _two_ways(root, outer, _sorted(set(inside.parents)), named)


def _inside(images: Images) -> Inside:
    places = Counter((folder, file.parent) for folder, found in images.items() for file in found)
    parts = {place: place[1].relative_to(place[0]).parts for place in places}
    way: tuple[str, ...] = ()
    while len(names := {part[len(way)] for part in parts.values() if len(part) > len(way)}) == 1:
        way += tuple(names)
    parents, count = defaultdict(set), Counter[str]()
    for (folder, _), part in parts.items():
        if len(part) > len(way):
            parents[part[len(way)]].add(folder.name)
            count[part[len(way)]] += places[folder, _]
    return Inside(way, dict(parents), count)


def _named(root: Path) -> list[str] | None:
    try:
        return _sorted(set(read_lines(root / CLASSES)))
    except (OSError, UnicodeDecodeError):
        return None


def _is_named(named: list[str] | None, folders: Iterable[str]) -> bool:
    """Return True if the names in the file `CLASSES` are exactly those of the folders."""
    return named is not None and set(named) == set(map(clean, folders))


def _unsorted_splits(root: Path, names: list[str]) -> DataError:
    hint = f"sort the images into one folder per class: {names[0]}/CLASS/image.jpg, or list them in {shown(root / TABLE)}; "
    hint += f"if {_list(names)} {'are classes' if len(names) > 1 else 'is a class'}: {_command(root, names)}"
    return DataError(f"no class folders in {_list(names)}", where=root, hint=hint)


def _too_deep(root: Path, holder: Path, inside: Inside, others: list[Path]) -> DataError:
    meant = holder.joinpath(*inside.way) if inside.images else holder
    holds = f"the folders {_list(_sorted(set(inside.parents)))}" if inside.images else f"a {TABLE}"
    advice = f"did you mean --data {shlex.quote(shown(meant))}?"
    if others:
        advice = f"move the content of {shown(holder)} up to {shown(holder.parent)}, in every split."
    what = f"one folder too deep: all images are in {shown(holder)}, which would be the only class; "
    what += f"{'it' if meant == holder else shown(meant)} holds {holds}"
    return DataError(what, where=root, hint=f"{advice} If {holder.name!r} is a class: {_command(root, [holder.name])}")


def _two_ways(root: Path, outer: list[str], inner: list[str], named: list[str] | None) -> DataError:
    file = shown(root / CLASSES)
    wrong = "" if named is None else f"; {file} names neither, but {_list(named) if named else 'nothing'}"
    hint = f"did you mean {_list(inner)}? Write these names into a file: {_command(root, inner)}; "
    hint += f"or write {_list(outer)} into it, if these are the classes. Folders of splits are called train, val and test"
    splits = {name: found[0] for name in outer if len(found := splits_in(name)) == 1}
    if len(splits) == len(outer) > 1:
        hint = f"rename folders of splits: {', '.join(f'{name} to {split}' for name, split in splits.items())}; "
        hint += f"if {_list(outer)} are the classes, write these names into a file: {_command(root, outer)}"
    what = f"the folders can be read in two ways: as classes {_list(outer)}, or as classes {_list(inner)}, "
    return DataError(f"{what}which are in several of those folders{wrong}", where=root, hint=hint)


def _command(root: Path, names: list[str]) -> str:
    words = names if len(names) <= 12 else [*names[:2], "…"]
    return f"printf '%s\\n' {' '.join(map(shlex.quote, words))} > {shlex.quote(shown(root / CLASSES))}"


def similar_classes(source: str, classes: list[str]) -> list[Issue]:
    """Return issues for classes whose names differ only in case, blanks, leading zeros, Unicode form or invisible characters.

    Single letters such as A and a are no issue: they may be classes of characters.
    """
    alike = defaultdict(list)
    for name in classes:
        plain = "".join(clean(name).casefold().split())
        alike[plain.lstrip("0") if plain.isdecimal() else plain].append(name)
    how = "differ only in capitals, blanks, leading zeros or invisible characters; give them one name, or names that differ more"
    several = [names for names in alike.values() if len(names) > 1 and any(len(name) > 1 for name in names)]
    return [Issue("similar-classes", source, f"the classes {_list(names)} {how}") for names in several]


def _sorted(names: set[str]) -> list[str]:
    return sorted(names, key=natural_key)


def _list(names: list[str]) -> str:
    if len(names) > 6:
        return f"{', '.join(map(repr, names[:5]))} and {len(names) - 5:,} more"
    return " and ".join(filter(None, (", ".join(map(repr, names[:-1])), repr(names[-1]))))
