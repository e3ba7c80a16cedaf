"""Sources of images: from the ``--data`` argument to named splits of labelled images."""

import glob
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.data.class_matching import match_classes
from vitrail.data.images.decode import SUFFIXES
from vitrail.data.items import (
    SPLITS,
    Contents,
    ImageData,
    Issue,
    Item,
    Label,
    Named,
    left_out_notes,
    pooled_notes,
    split_of,
    with_indices,
)
from vitrail.data.readers.cifar10 import read_cifar10
from vitrail.data.readers.folder import has_class_folders, read_folder
from vitrail.data.readers.folder_layout import similar_classes
from vitrail.data.readers.hub import read_hub
from vitrail.data.readers.shards import read_shards
from vitrail.data.readers.table import TABLE, labels_in, read_table, table_of
from vitrail.data.readers.tree import folders_of, images_of_data, no_images, unlisted_in
from vitrail.data.splits import SHARES, Assignment, with_splits
from vitrail.data.tables.csv_rows import NAMED_ENDINGS
from vitrail.errors import ConfigError, DataError
from vitrail.files import is_text, path_of
from vitrail.runtime.observer import Note
from vitrail.settings import brief

__all__ = ["SPLITS", "ImageData", "Item", "Label", "image_files", "match_classes", "open_data", "read_data"]

READERS: dict[str, Callable[[str], Contents]] = {
    "cifar10:": lambda path: read_cifar10(_existing(path)),
    "hf:": read_hub,
    "wds:": read_shards,
}
"""Readers of data by the beginning of its argument."""
LOOKED_AT = 1000
"""Images of a table that are compared with the folders beside it."""


def open_data(
    source: str | Path,
    *,
    split_seed: int = 0,
    shares: Mapping[str, float] = SHARES,
    assignment: Assignment | None = None,
    group: str | None = None,
) -> ImageData:
    """Open labelled images with their splits.

    Args:
        source: ``digits``; a folder with ``train/CLASS/*`` and so on, or flat with ``CLASS/*``; a table ``labels.csv``
            with ``image,label[,split]``; ``cifar10:PATH``, an archive as downloaded or what it unpacks to;
            ``hf:NAME[@REVISION]`` or ``hf:PATH`` through the library ``datasets``; ``wds:shards-{000..009}.tar``.
        split_seed: data without splits is split by it into train, validation and test, the same share of every class;
            of data with a training split and no validation a part of the training images becomes validation.
        shares: of test and validation in such data, {"test": 0.2, "val": 0.1} where they are not given.
        assignment: repeats an earlier split.
        group: of a table, the column that names the group of each image, ``group`` by default; a group is in one split.

    Raises:
        DataError: nothing there, no images, or labels and images that do not fit each other.
        ConfigError: what reads this kind of data is not installed.
    """
    return open_contents(read_data(source, group), split_seed, shares, assignment)


def open_contents(contents: Contents, split_seed: int, shares: Mapping[str, float], assignment: Assignment | None) -> ImageData:
    """Split data that is read already; see `open_data`."""
    if contents.issues:
        first, *others = contents.issues
        what = first.what + (f" (and {len(others):,} more faults)" if others else "")
        hint = f"vitrail data check {shlex.quote(contents.source)} lists all there is to correct"
        raise DataError(what, where=first.path, hint=hint)
    if contents.source == "digits":
        return replace(with_splits(contents, 0), has_splits=True)  # one split for all time
    return with_splits(contents, split_seed, assignment, shares)


def is_named(source: str | Path) -> bool:
    """Return True for ``digits`` and prefixes such as ``hf:``, False for a path."""
    return str(source) == "digits" or str(source).startswith(tuple(READERS))


def require_there(source: str | Path) -> None:
    """Raise `DataError` if a path of data is not there; `read_data` checks what is in it."""
    path = str(source).removeprefix("cifar10:")
    if not is_named(path):
        _existing(path)


def read_data(source: str | Path, group: str | None = None) -> Contents:
    """Read the contents of a data set, with everything that is wrong with it; see `open_data`."""
    contents = _read(source, group)
    if group and not contents.groups and not contents.issues:
        hint = f"give a table such as {TABLE} with this column, or leave --data.group out"
        raise DataError(f"the data has no column {group!r} of groups", where=contents.source, hint=hint)
    unwritable = [  # no model could have such a class; names of images may be anything that the disk holds
        Issue("bad-name", contents.source, f"the name of the class {name!r} is not in UTF-8; call it, or its folder, otherwise")
        for name in contents.classes
        if not is_text(name)
    ]
    return replace(contents, issues=[*unwritable, *contents.issues])


def _read(source: str | Path, group: str | None = None) -> Contents:
    text = str(source)
    if text == "digits":
        return _digits()
    for prefix, read in READERS.items():
        if text.startswith(prefix):
            return read(text.removeprefix(prefix))
    contents = _read_path(_existing(source), group)
    return replace(contents, issues=[*similar_classes(contents.source, contents.classes), *contents.issues])


def _require_one_reading(table: Path) -> None:
    """Raise `DataError` for a table that gives images in folders of classes other labels."""
    try:
        listed = read_table(table)
    except DataError:  # it is of other things
        return
    for item in islice(chain.from_iterable(listed.splits.values()), LOOKED_AT):
        labels, file = [listed.classes[label] for label in item.labels], item.image
        if isinstance(file, Path) and file.is_file() and file.parent.name not in (*labels, table.parent.name):
            what = f"{table.name} says of {item.name} that it is {brief(', '.join(labels))}, and its folder that it is"
            hint = f"give the table itself, {table}, or take it away to go by the folders"
            raise DataError(f"{what} {brief(file.parent.name)}", where=table.parent, hint=hint)


def _read_path(path: Path, group: str | None = None) -> Contents:
    if path.is_dir():
        table = table_of(path)
        if table is None:
            return _read_tables_of_splits(path, group) or read_folder(path)
        by_folders = has_class_folders(path)
        if by_folders:
            _require_one_reading(table)
        if by_folders or (folders_of(path) and not labels_in(path)):
            return read_folder(path)  # a table of other things may lie beside folders
        contents = read_table(table, group)
        return replace(contents, ignored=_unlisted(path, [table], [contents]))
    if path.suffix.lower() not in NAMED_ENDINGS:
        people = "; people and their joints are learned with --task pose" if path.suffix.lower() == ".json" else ""
        hint = f"give the folder that holds the images, or a table such as {TABLE}{people}"
        raise DataError(f"{path} is a file", where="--data", hint=hint)
    return read_table(path, group)


def _read_tables_of_splits(root: Path, group: str | None) -> Contents | None:
    """Read the folders of splits that have a table beside their images each; None where none has."""
    folders = [(split, folder) for folder in folders_of(root) if (split := split_of(folder.name))]
    tables = [(split, table) for split, folder in folders if not has_class_folders(folder) and (table := table_of(folder))]
    if not any(labels_in(table.parent) for _, table in tables):
        return None
    found: list[Named] = []
    read = [read_table(table, group) for _, table in tables]
    for (split, table), contents in zip(tables, read, strict=True):
        for item in chain.from_iterable(contents.splits.values()):
            labels = tuple(contents.classes[label] for label in item.labels)
            found.append(Named(split, f"{table.parent.name}/{item.name}", item.image, labels, contents.groups.get(item.name, "")))
    issues = [issue for contents in read for issue in contents.issues]
    notes = (*pooled_notes((split, table.parent.name) for split, table in tables), *(n for one in read for n in one.notes))
    several = any(contents.multi_label for contents in read)
    joined = with_indices(str(root), found, multi_label=several, issues=issues, notes=tuple(dict.fromkeys(notes)))
    return replace(joined, ignored=_unlisted(root, [table for _, table in tables], read))


def _unlisted(root: Path, tables: list[Path], read: list[Contents]) -> list[Issue]:
    """Return issues for files in a folder that no table lists."""
    items = (item for contents in read for item in chain.from_iterable(contents.splits.values()))
    return unlisted_in(root, {os.path.abspath(str(item.image)) for item in items} | set(map(str, tables)))


def _existing(source: str | Path) -> Path:
    path = Path(os.path.abspath(path_of(source)))
    if not os.path.exists(path):
        hint = f"give a folder of images sorted into folders by class, a {TABLE}, digits, cifar10:PATH, hf:NAME or wds:PATTERN"
        raise DataError(f"no data at {str(source)!r}", where="--data", hint=hint)
    return path


def _digits() -> Contents:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    digits = enumerate(zip(pixels, bunch.target, strict=True))
    items = [Item(f"digit-{i:04d}", Image.fromarray(image), int(digit)) for i, (image, digit) in digits]
    return Contents("digits", [str(d) for d in range(10)], {"all": items})


def image_files(paths: list[str], note: Note = lambda text: None) -> list[Path]:
    """Return the images that ``paths`` name: files as given, folders searched, globs and ``~`` expanded, each image once.

    The line that counts what else is in the folders goes to ``note``.

    Raises:
        DataError: a path that names nothing.
        ConfigError: no path at all.
    """
    if not paths:
        raise ConfigError("no images given", where="predict", hint="name image files, folders or globs like 'photos/*.jpg'")
    found: dict[str, Path] = {}
    left_out: dict[str, Issue] = {}
    for path in map(os.path.expanduser, paths):
        hits = [Path(path)] if os.path.exists(path) else [Path(p) for p in sorted(glob.glob(path, recursive=True))]
        others: list[Issue] = []
        files = [f for hit in hits for f in (images_of_data(hit, others) if hit.is_dir() else [hit])]
        if not files and hits:
            raise no_images(hits[0], others, hint=f"name images, or a folder with some below it: {', '.join(SUFFIXES)}")
        if not files:
            hint = "check the path; quote a glob so that the shell leaves it alone"
            raise DataError(f"no image at {path!r}", where=path, hint=hint)
        for file in files:
            found.setdefault(os.path.abspath(file), file)
        left_out |= {os.path.abspath(issue.path): issue for issue in others}
    for line in left_out_notes(issue for place, issue in left_out.items() if place not in found):
        note(line)
    return list(found.values())
