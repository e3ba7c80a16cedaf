"""Sources of images: from the ``--data`` argument to splits of labelled images."""

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
"""Readers of data by the prefix of the ``--data`` argument."""
LOOKED_AT = 1000
"""Number of images in a table whose labels are compared with the names of their folders."""


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
        source: ``digits``; a folder with ``train/CLASS/*``, ``test/CLASS/*``, or with ``CLASS/*``; a table ``labels.csv`` with
            ``image,label[,split]``; ``cifar10:PATH``, the downloaded archive or its unpacked folder;
            ``hf:NAME[@REVISION]`` or ``hf:PATH``, read by the library ``datasets``; ``wds:shards-{000..009}.tar``.
        split_seed: seed for splitting data without splits into train, val and test, with the same fractions of every class.
            Data with a training split and no validation split gets one from the training images.
        shares: the fractions for test and validation in such data; by default {"test": 0.2, "val": 0.1}.
        assignment: an earlier assignment of images to splits, which is repeated.
        group: the table's column that names the group of each image, by default ``group``; a group is never divided
            between splits.

    Raises:
        DataError: the source does not exist, has no images, or its labels and images contradict each other.
        ConfigError: a library for this kind of data is not installed.
    """
    return open_contents(read_data(source, group), split_seed, shares, assignment)


def open_contents(contents: Contents, split_seed: int, shares: Mapping[str, float], assignment: Assignment | None) -> ImageData:
    """Split contents that have been read, see `open_data`; raises `DataError` if they have faults."""
    if contents.issues:
        first, *others = contents.issues
        what = first.what + (f" (and {len(others):,} more faults)" if others else "")
        hint = f"vitrail data check {shlex.quote(contents.source)} lists all faults"
        raise DataError(what, where=first.path, hint=hint)
    if contents.source == "digits":
        return replace(with_splits(contents, 0), has_splits=True)  # always the same split
    return with_splits(contents, split_seed, assignment, shares)


def is_named(source: str | Path) -> bool:
    """Return True for ``digits`` and for sources with a prefix such as ``hf:``, False for a path."""
    return str(source) == "digits" or str(source).startswith(tuple(READERS))


def require_there(source: str | Path) -> None:
    """Raise `DataError` if the path of the data does not exist; `read_data` checks its content."""
    path = str(source).removeprefix("cifar10:")
    if not is_named(path):
        _existing(path)


def read_data(source: str | Path, group: str | None = None) -> Contents:
    """Read the contents of a data set, with its faults as issues; see `open_data`."""
    contents = _read(source, group)
    if group and not contents.groups and not contents.issues:
        hint = f"give a table such as {TABLE} with this column, or leave --data.group out"
        raise DataError(f"the data has no column {group!r} of groups", where=contents.source, hint=hint)
    unwritable = [  # a model file cannot store such a class name
        Issue("bad-name", contents.source, f"the name of the class {name!r} is not in UTF-8; rename the class or its folder")
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
    """Raise `DataError` if a table's labels contradict the class folders of the images."""
    try:
        listed = read_table(table)
    except DataError:  # it is no table of labels
        return
    for item in islice(chain.from_iterable(listed.splits.values()), LOOKED_AT):
        labels, file = [listed.classes[label] for label in item.labels], item.image
        if isinstance(file, Path) and file.is_file() and file.parent.name not in (*labels, table.parent.name):
            what = f"{table.name} labels {item.name} as {brief(', '.join(labels))}, but it is in the folder"
            hint = f"give --data {table} to use the table, or remove the table to use the folders"
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
            return read_folder(path)  # the table is no table of labels, or agrees with the folders
        contents = read_table(table, group)
        return replace(contents, ignored=_unlisted(path, [table], [contents]))
    if path.suffix.lower() not in NAMED_ENDINGS:
        people = "; for annotated people add --task pose" if path.suffix.lower() == ".json" else ""
        hint = f"give the folder that holds the images, or a table such as {TABLE}{people}"
        raise DataError(f"{path} is a file", where="--data", hint=hint)
    return read_table(path, group)


def _read_tables_of_splits(root: Path, group: str | None) -> Contents | None:
    """Read split folders that each have a table next to their images; return None if no folder has a table."""
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
    """Return an issue for each file in a folder that no table lists."""
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
    """Return the images at ``paths``: files, all images below folders, and the matches of globs; each image once.

    ``~`` is expanded. A line that counts the other files in the folders is passed to ``note``.

    Raises:
        DataError: a path names no image.
        ConfigError: ``paths`` is empty.
    """
    if not paths:
        raise ConfigError("no images given", where="predict", hint="give image files, folders or globs such as 'photos/*.jpg'")
    found: dict[str, Path] = {}
    left_out: dict[str, Issue] = {}
    for path in map(os.path.expanduser, paths):
        hits = [Path(path)] if os.path.exists(path) else [Path(p) for p in sorted(glob.glob(path, recursive=True))]
        others: list[Issue] = []
        files = [f for hit in hits for f in (images_of_data(hit, others) if hit.is_dir() else [hit])]
        if not files and hits:
            raise no_images(hits[0], others, hint=f"give images, or a folder with images below it: {', '.join(SUFFIXES)}")
        if not files:
            hint = "check the path; write a glob in quotation marks, so that the shell does not expand it"
            raise DataError(f"no image at {path!r}", where=path, hint=hint)
        for file in files:
            found.setdefault(os.path.abspath(file), file)
        left_out |= {os.path.abspath(issue.path): issue for issue in others}
    for line in left_out_notes(issue for place, issue in left_out.items() if place not in found):
        note(line)
    return list(found.values())
