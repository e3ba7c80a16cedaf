"""Images without labels: a file, a folder of images, or labelled data whose labels are ignored."""

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from vitrail.data.images.decode import SUFFIXES, Source
from vitrail.data.items import Contents, ImageData, Issue, Item, left_out_notes, pooled_notes, split_of
from vitrail.data.loading.sampler import spread
from vitrail.data.readers.folder import has_class_folders
from vitrail.data.readers.sources import is_named, open_contents, read_data
from vitrail.data.readers.table import TABLE, labels_in
from vitrail.data.readers.tree import images_of_data, is_image, no_images
from vitrail.data.splits import SHARES, Assignment
from vitrail.files import path_of
from vitrail.runtime.observer import Note


def unlabelled_items(data: str | Path, count: int, multi_label: bool = False, *, note: Note = lambda text: None) -> list[Item]:
    """Return up to ``count`` images, evenly spaced, of a file or folder without labels; an empty list for other data.

    A line that counts the other files in the folder is passed to ``note``.
    """
    path, left_out = path_of(data), list[Issue]()
    if path.is_dir():
        files = [] if has_class_folders(path) or labels_in(path) else images_of_data(path, left_out)
    else:
        files = [path] if path.is_file() and is_image(path) else []
    for line in left_out_notes(left_out) if files else ():
        note(line)
    return [unlabelled(files[i].name, files[i], multi_label) for i in spread(len(files), count)]


def unlabelled(name: str, image: Source, multi_label: bool) -> Item:
    """Return an item with a placeholder label: ``()`` for several labels per image, else 0."""
    return Item(name, image, () if multi_label else 0)


def open_unlabelled(
    source: str | Path,
    *,
    split_seed: int = 0,
    shares: Mapping[str, float] = SHARES,
    assignment: Assignment | None = None,
    group: str | None = None,
) -> ImageData:
    """Open images for training without labels; the other arguments are those of `vitrail.data.readers.sources.open_data`.

    Args:
        source: a folder with images at any depth; a folder with subfolders ``train``, ``val`` and ``test`` (others are left
            out); or any other source of `open_data`. A subfolder ``train`` counts as a split if there is another split, or
            no other subfolder. Without a validation split, a tenth of the training images becomes one.

    Raises:
        DataError: there are no images.
    """
    return open_contents(read_unlabelled(source, group), split_seed, shares, assignment)


def read_unlabelled(source: str | Path, group: str | None = None) -> Contents:
    """Read the contents for `open_unlabelled`; raises `DataError` if there are no images."""
    if is_named(source):
        return read_data(source, group)
    root = Path(os.path.abspath(path_of(source)))
    if group or not root.is_dir() or (root / TABLE).is_file():
        return read_data(source, group)
    splits: dict[str, list[Item]] = defaultdict(list)
    left_out: list[Issue] = []
    places = {file: file.relative_to(root) for file in images_of_data(root, left_out)}
    split_of_folder = _split_folders({path.parts[0] for path in places.values() if len(path.parts) > 1})
    for file, path in places.items():
        if split := split_of_folder.get(path.parts[0], "" if split_of_folder else "train"):
            splits[split].append(unlabelled(path.as_posix(), file, multi_label=True))
        else:
            left_out.append(Issue("outside", str(file), "an image outside the splits"))
    if not splits["train"]:
        raise no_images(root, left_out, hint=f"give a folder with images below it: {', '.join(SUFFIXES)}")
    notes = tuple(pooled_notes((split, name) for name, split in split_of_folder.items()))
    return Contents(str(root), [], dict(splits), multi_label=True, ignored=left_out, notes=notes)


def _split_folders(names: set[str]) -> dict[str, str]:
    """Return the split of each folder named like one; empty if the names may be a coincidence.

    They count as splits if ``train`` is among them, with another split or without any other folder.
    """
    found = {name: split for name in names if (split := split_of(name))}
    splits = set(found.values())
    return found if "train" in splits and (len(splits) > 1 or len(found) == len(names)) else {}
