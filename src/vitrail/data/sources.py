"""Where images come from: the ``--data`` argument to named splits of labelled images."""

import glob
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.data.decode import SUFFIXES
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of

SPLITS = ("train", "val", "test")
SPLIT_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
SHARES = {"test": 0.2, "val": 0.1}
"""What a data set without splits of its own gives to test and validation."""

Assignment = Mapping[str, str]
"""Which split each image of a data set belongs to, by the image's name."""


@dataclass(frozen=True)
class Item:
    """One labelled image."""

    name: str
    """Path below the data folder, or a name of the data set's own."""
    image: Path | Image.Image
    label: int


@dataclass(frozen=True)
class ImageData:
    """A data set: its classes in order of their index, and its splits."""

    source: str
    classes: list[str]
    splits: dict[str, list[Item]]
    assignment: dict[str, str] | None = None
    """How images were dealt to splits, where the data set has none of its own; a run keeps it."""
    has_splits: bool = True
    """Whether the data set itself says what is for testing; a flat folder does not."""

    def split(self, name: str) -> list[Item]:
        """The images of one split, or of all of them for "all"; raises `DataError` where there are none."""
        items = [i for s in self.splits.values() for i in s] if name == "all" else self.splits.get(name, [])
        if not items:
            raise DataError(
                f"no images in the split {name!r}",
                where=self.source,
                hint=f"splits here: {', '.join(s for s in self.splits if self.splits[s])}, all",
            )
        return items

    @property
    def evaluation_split(self) -> str:
        """The split that reports are made on: test, else validation, else everything."""
        return next((s for s in ("test", "val") if self.splits.get(s)), "all")

    def counts(self, split: str) -> list[int]:
        """Images of every class in a split."""
        count = Counter(item.label for item in self.splits.get(split, []))
        return [count[label] for label in range(len(self.classes))]


def open_data(source: str | Path, *, split_seed: int = 0, assignment: Assignment | None = None) -> ImageData:
    """Open ``digits`` or a folder, with ``train/CLASS/*`` and so on, or flat with ``CLASS/*``.

    A data set without splits is dealt into train, validation and test, the same share of every class, by
    ``split_seed``; ``assignment`` repeats an earlier deal. One with a training split alone gives a part of it to
    validation. Hidden files and folders are ignored; classes sort naturally, 2 before 10.

    Raises:
        DataError: nothing there, or no images.
    """
    if str(source) == "digits":
        return _digits()
    folder = Path(os.path.abspath(path_of(source)))
    if not os.path.exists(folder):
        raise DataError(
            f"no data at {str(source)!r}", where="--data", hint="give a folder of images sorted into folders by class, or digits"
        )
    if not folder.is_dir():
        raise DataError(f"{folder} is a file", where="--data", hint="give the folder that holds the images")
    return _folder(folder, split_seed, assignment)


def _digits() -> ImageData:
    """The 1,797 handwritten digits of scikit-learn, 8×8 grey, with one split for all time."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    items = [
        Item(f"digit-{i:04d}", Image.fromarray(p), int(t)) for i, (p, t) in enumerate(zip(pixels, bunch.target, strict=True))
    ]
    return _dealt("digits", [str(d) for d in range(10)], items, SHARES, 0, None)


def _folder(folder: Path, seed: int, assignment: Assignment | None) -> ImageData:
    below = _folders(folder)
    parts = [(SPLIT_FOLDERS[p.name.lower()], p) for p in below if p.name.lower() in SPLIT_FOLDERS and _folders(p)]
    if not any(split == "train" for split, _ in parts) and len(parts) < len(below):
        classes = _classes(below, folder)  # flat; a class may be called "test"
        dealt = _dealt(str(folder), classes, _items(folder, folder, classes), SHARES, seed, assignment)
        return replace(dealt, has_splits=False)
    classes = _classes([c for _, p in parts for c in _folders(p)], folder)
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for split, path in parts:
        splits[split] += _items(folder, path, classes)
    if splits["train"] and not splits["val"]:
        dealt = _dealt(str(folder), classes, splits["train"], {"val": SHARES["val"]}, seed, assignment)
        return replace(dealt, splits={**dealt.splits, "test": splits["test"]}, has_splits=bool(splits["test"]))
    return ImageData(str(folder), classes, splits)


def _dealt(
    source: str, classes: list[str], items: list[Item], shares: Mapping[str, float], seed: int, assignment: Assignment | None
) -> ImageData:
    if assignment is None:
        assignment = deal([i.name for i in items], [i.label for i in items], shares, seed)
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for item in items:
        if item.name in assignment:  # images added since an earlier deal belong to no split
            splits[assignment[item.name]].append(item)
    return ImageData(source, classes, splits, dict(assignment))


def deal(names: list[str], labels: list[int], shares: Mapping[str, float], seed: int) -> dict[str, str]:
    """Deal images to splits, stratified: which split each image belongs to, by name.

    Of every class each split gets its share, rounded down or up; which of the two depends on what the classes before
    have left it owed, so that the splits as a whole get their shares, too. Every class keeps an image for training.
    """
    random = np.random.default_rng(seed)
    label = np.asarray(labels)
    owed = {split: math.ceil(share * len(names)) - share * len(names) for split, share in shares.items()}
    result = dict.fromkeys(names, "train")
    for value in np.unique(label):
        members = random.permutation(np.flatnonzero(label == value)).tolist()
        for split, share in shares.items():
            fair = share * np.count_nonzero(label == value)
            owed[split] += fair
            count = min(max(round(owed[split]), math.floor(fair)), math.floor(fair) + 1, len(members) - 1)
            owed[split] -= count
            result.update({names[i]: split for i in members[:count]})
            members = members[count:]
    return result


def _classes(folders: list[Path], where: Path) -> list[str]:
    classes = sorted({p.name for p in folders if _images(p)}, key=natural_key)
    if not classes:
        raise DataError(
            "no images found",
            where=where,
            hint="sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg",
        )
    return classes


def _items(root: Path, folder: Path, classes: list[str]) -> list[Item]:
    index = {name: i for i, name in enumerate(classes)}
    return [
        Item(path.relative_to(root).as_posix(), path, index[child.name])
        for child in _folders(folder)
        if child.name in index
        for path in _images(child)
    ]


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder that can hold images: no hidden ones, no runs."""
    below = (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".") and not _holds_a_run(p))
    return sorted(below, key=lambda p: natural_key(p.name))


def _holds_a_run(folder: Path) -> bool:
    """Whether a folder is a run, or holds runs: their pictures are no data."""
    return any((p / "status.json").is_file() and (p / "config.yaml").is_file() for p in (folder, *folder.glob("*/")))


def _images(folder: Path) -> list[Path]:
    """Image files anywhere below a folder, hidden ones left out."""
    return sorted(
        (
            p
            for p in folder.rglob("*")
            if p.suffix.lower() in SUFFIXES
            and not any(part.startswith(".") for part in p.relative_to(folder).parts)
            and p.is_file()
        ),
        key=lambda p: natural_key(p.as_posix()),
    )


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts numbers inside names by value: ``2`` before ``10``."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]


def match_classes(classes: list[str], labels: list[str], *, where: object) -> list[int]:
    """The model's index of every class of some data: by name, or a whole number as the index itself.

    Raises:
        DataError: listing both sides where a class matches neither. It never guesses by position.
    """
    by_name = {label: i for i, label in enumerate(labels)}
    numbers = {int(label): i for i, label in enumerate(labels) if label.isdecimal()}  # where there are, a number is a name
    index = numbers or {i: i for i in range(len(labels))}
    matched = [by_name.get(c, index.get(int(c), -1) if c.isdecimal() else -1) for c in classes]
    strangers = [c for c, i in zip(classes, matched, strict=True) if not 0 <= i < len(labels)]
    if strangers:
        raise DataError(
            f"classes {_some(strangers)} of the data are none of the model's labels {_some(labels)}",
            where=where,
            hint="rename the folders to the model's labels or to their indices",
        )
    return matched


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def image_files(paths: list[str]) -> list[Path]:
    """The images that ``paths`` name: files as given, folders searched, globs expanded, each image once.

    Raises:
        DataError: a path that names nothing.
        ConfigError: no path at all.
    """
    if not paths:
        raise ConfigError("no images given", where="predict", hint="name image files, folders or globs like 'photos/*.jpg'")
    found: dict[str, Path] = {}
    for path in paths:
        hits = [Path(path)] if os.path.exists(path) else [Path(p) for p in sorted(glob.glob(path, recursive=True))]
        files = [f for hit in hits for f in (_images(hit) if hit.is_dir() else [hit])]
        if not files:
            raise DataError(
                f"no image at {path!r}", where=path, hint="check the path; quote a glob so that the shell leaves it alone"
            )
        for file in files:
            found.setdefault(os.path.abspath(file), file)
    return list(found.values())
