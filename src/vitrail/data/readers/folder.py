"""Folders of images with a subfolder for each class: ``train/CLASS/*``, ``test/CLASS/*``, or ``CLASS/*`` without splits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vitrail.data.items import SPLITS, Contents, Issue, Item, natural_key, pooled_notes, split_of, splits_by_name
from vitrail.data.readers.folder_layout import CLASSES, way_to_classes
from vitrail.data.readers.table import TABLE
from vitrail.data.readers.tree import (
    files_below,
    files_of,
    folders_of,
    images_below,
    images_of_data,
    is_image,
    left_out_of,
    no_images,
    not_images,
)
from vitrail.data.tables.csv_rows import ENDINGS
from vitrail.errors import DataError


@dataclass(frozen=True)
class _Classes:
    """The class folders with their splits; a class has one folder in each of its splits."""

    folders: list[tuple[str, Path]]
    files: dict[Path, list[Path]]
    images: dict[Path, list[Path]]
    left_out: list[Issue]

    @classmethod
    def of(cls, parents: list[tuple[str, Path]]) -> Self:
        folders = [(split, folder) for split, parent in parents for folder in folders_of(parent)]
        left_out = [issue for _, parent in parents for issue in left_out_of(parent)]
        files = {folder: files_below(folder, left_out) for _, folder in folders}
        return cls(folders, files, {folder: [f for f in found if is_image(f)] for folder, found in files.items()}, left_out)


def read_folder(root: Path) -> Contents:
    """Read a folder whose subfolders are splits or classes.

    Hidden files and folders and run folders are ignored. Classes are sorted naturally: 2 before 10.

    Raises:
        DataError: there are no images, or the layout is ambiguous; see `vitrail.data.readers.folder_layout`.
    """
    below = folders_of(root)
    parts = _split_folders(below)
    flat = not any(split == "train" for split, _ in parts) and len(parts) < len(below)  # a class may be called "test"
    if flat:
        parts = [("all", root)]
    found, parents = _Classes.of(parts), [part for _, part in parts]
    if (way := way_to_classes(root, found.images, flat=flat)) is not None:
        inner = [(split, folder.joinpath(*way)) for split, folder in found.folders if folder.joinpath(*way).is_dir()]
        found, parents = _Classes.of(inner), [*parents, *(folder for _, folder in inner)]
    classes = _classes(found.images, root)
    index = {name: i for i, name in enumerate(classes)}
    splits: dict[str, list[Item]] = {split: [] for split in (*SPLITS, "all") if any(split == part for part, _ in parts)}
    for split, folder in found.folders:
        splits[split] += [Item(f.relative_to(root).as_posix(), f, index[folder.name]) for f in found.images[folder]]
    aside = [] if flat else [folder for folder in below if (split_of(folder.name), folder) not in parts]
    bare = [folder for folder in aside if split_of(folder.name)]
    beside = [file for folder in dict.fromkeys([root, *parents, *bare]) for file in files_of(folder)]
    beside = [file for file in beside if file != root / CLASSES]
    others = not_images([*(file for files in found.files.values() for file in files), *beside])
    warnings = [issue for issue in others if issue.kind == "unreadable"]
    ignored = [issue for issue in others if issue.kind == "ignored"]
    unused = [folder for folder in found.files if folder.name not in index]
    warnings += [Issue("empty-class", str(folder), "no images in the folder of this class") for folder in unused]
    warnings += [Issue("no-class", str(file), "an image outside the class folders") for file in beside if is_image(file)]
    ignored += [Issue("no-split", str(folder), "a folder that is not a split with class folders") for folder in aside]
    ignored += dict.fromkeys([*found.left_out, *left_out_of(root)])
    notes = tuple(pooled_notes((split, part.name) for split, part in parts))
    return Contents(str(root), classes, splits, warnings=warnings, ignored=ignored, notes=notes)


def _classes(images: Mapping[Path, list[Path]], root: Path) -> list[str]:
    """Return the sorted names of the class folders that have images; raises `DataError` if there is none."""
    classes = sorted({folder.name for folder, found in images.items() if found}, key=natural_key)
    if classes:
        return classes
    left_out: list[Issue] = []
    unsorted = images_of_data(root, left_out)
    hint = "sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg, "
    tables = [file.name for file in files_of(root) if file.suffix.lower() in ENDINGS]
    listed = f"give the table that lists them: {' or '.join(tables)}" if tables else f"list them with labels in FOLDER/{TABLE}"
    hint += f"or {listed}"
    if not unsorted:
        raise no_images(root, left_out, hint=hint)
    raise DataError(f"{len(unsorted):,} images have no labels: none of them is in a class folder", where=root, hint=hint)


def has_class_folders(root: Path) -> bool:
    """Return True if a folder has subfolders for splits and classes, or for two classes or more."""
    below = folders_of(root)
    classes = [f for f in below if not split_of(f.name) and images_below(f)]
    return bool(_split_folders(below)) or len(classes) > 1


def _split_folders(below: list[Path]) -> list[tuple[str, Path]]:
    """Return pairs (split, folder) of the folders that are named like a split and have subfolders."""
    splits = splits_by_name(folder.name for folder in below)
    return [(splits[folder.name], folder) for folder in below if folder.name in splits and folders_of(folder)]
