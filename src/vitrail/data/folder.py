"""Folders of images, a folder for each class: ``train/CLASS/*`` and so on, or ``CLASS/*`` alone."""

import os
from collections.abc import Mapping
from pathlib import Path

from vitrail.data.decode import SUFFIXES
from vitrail.data.items import SPLIT_OF_NAME, SPLITS, Contents, Issue, Item, natural_key
from vitrail.errors import DataError

TABLE = "labels.csv"
"""The table that a folder without folders for classes may hold."""


def read_folder(root: Path) -> Contents:
    """Read a folder that has folders for splits, or folders for classes.

    Hidden files and folders are ignored, and so are runs; classes sort naturally, 2 before 10.

    Raises:
        DataError: no images.
    """
    below = folders_of(root)
    parts = _split_folders(below)
    flat = not any(split == "train" for split, _ in parts) and len(parts) < len(below)  # a class may be called "test"
    if flat:
        parts = [("all", root)]
    folders = [(split, folder) for split, part in parts for folder in folders_of(part)]
    files = {folder: files_below(folder) for _, folder in folders}
    images = {folder: [file for file in found if is_image(file)] for folder, found in files.items()}
    classes = _classes(images, root)
    index = {name: i for i, name in enumerate(classes)}
    splits: dict[str, list[Item]] = {split: [] for split in (*SPLITS, "all") if any(split == part for part, _ in parts)}
    for split, folder in folders:
        splits[split] += [Item(file.relative_to(root).as_posix(), file, index[folder.name]) for file in images[folder]]
    aside = [] if flat else [folder for folder in below if (SPLIT_OF_NAME.get(folder.name.lower()), folder) not in parts]
    bare = [folder for folder in aside if folder.name.lower() in SPLIT_OF_NAME]
    beside = [file for folder in dict.fromkeys([root, *(part for _, part in parts), *bare]) for file in _files(folder)]
    warnings, ignored = _without_images([*(file for found in files.values() for file in found), *beside])
    unused = [folder for folder in files if folder.name not in index]
    warnings += [Issue("empty-class", str(folder), "no images in the folder of this class") for folder in unused]
    warnings += [Issue("no-class", str(file), "an image outside the folders of classes") for file in beside if is_image(file)]
    ignored += [Issue("ignored", str(folder), "a folder that is no split with folders of classes") for folder in aside]
    return Contents(str(root), classes, splits, warnings=warnings, ignored=ignored)


def _classes(images: Mapping[Path, list[Path]], root: Path) -> list[str]:
    """The names of the folders that have images."""
    classes = sorted({folder.name for folder, found in images.items() if found}, key=natural_key)
    if not classes:
        raise DataError(
            "no images found",
            where=root,
            hint="sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg, "
            f"or list them in FOLDER/{TABLE}",
        )
    return classes


def _without_images(files: list[Path]) -> tuple[list[Issue], list[Issue]]:
    """Links that are named as images and lead nowhere, and files of other kinds."""
    files = [file for file in files if not is_image(file)]
    gone = dict.fromkeys(file for file in files if file.suffix.lower() in SUFFIXES and file.is_symlink())
    others = [file for file in files if file not in gone]
    return (
        [Issue("unreadable", str(file), "a link to no file") for file in gone],
        [Issue("ignored", str(file), f"not named as an image: {', '.join(SUFFIXES)}") for file in others],
    )


def has_class_folders(root: Path) -> bool:
    """Whether a folder sorts images by folders: into splits and classes, or into two classes or more."""
    below = folders_of(root)
    classes = [f for f in below if f.name.lower() not in SPLIT_OF_NAME and images_below(f)]
    return bool(_split_folders(below)) or len(classes) > 1


def images_below(folder: Path) -> list[Path]:
    """Image files anywhere below a folder, in natural order; hidden ones and linked folders are left out."""
    return [file for file in files_below(folder) if is_image(file)]


def files_below(folder: Path) -> list[Path]:
    """Files anywhere below a folder, in natural order; hidden ones, linked folders and the pictures of runs are left out."""
    found: list[Path] = []
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_a_run(Path(path, name))]
        found += (Path(path, name) for name in names if not name.startswith("."))
    return sorted(found, key=lambda p: natural_key(p.as_posix()))


def is_image(file: Path) -> bool:
    """Whether a file is named as an image, and is there."""
    return file.suffix.lower() in SUFFIXES and os.path.isfile(file)


def _split_folders(below: list[Path]) -> list[tuple[str, Path]]:
    """The folders that are splits, with the split's name: those called like one that hold folders."""
    return [(SPLIT_OF_NAME[p.name.lower()], p) for p in below if p.name.lower() in SPLIT_OF_NAME and folders_of(p)]


def folders_of(folder: Path) -> list[Path]:
    """The folders in a folder that can hold images: no hidden ones, no runs."""
    below = (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".") and not _holds_a_run(p))
    return sorted(below, key=lambda p: natural_key(p.name))


def _files(folder: Path) -> list[Path]:
    """The files in a folder itself, hidden ones left out."""
    files = (p for p in folder.iterdir() if not p.is_dir() and not p.name.startswith("."))
    return sorted(files, key=lambda p: natural_key(p.name))


def _holds_a_run(folder: Path) -> bool:
    """Whether a folder is a run, or holds runs: their pictures are no data."""
    return any(_is_a_run(p) for p in (folder, *folder.glob("*/")))


def _is_a_run(folder: Path) -> bool:
    return (folder / "status.json").is_file() and (folder / "config.yaml").is_file()
