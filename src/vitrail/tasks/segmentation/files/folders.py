"""Folders of images beside folders of masks, matched by the names of the files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from vitrail.data.items import Issue, Item, split_of
from vitrail.data.readers.tree import files_below, folders_of, is_image, not_images

IMAGES = ("images", "image", "imgs", "img", "jpegimages")
MASKS = ("masks", "mask", "annotations", "labels", "segmentationclass")
"""Lower-case names of the folders, in order of precedence."""
NO_MASK = "no-mask"
"""Kind of issue for an image without a mask."""


class Pair(NamedTuple):
    """A folder of images and the folder of their masks; without a folder of masks the split has none."""

    split: str
    images: Path
    masks: Path | None


@dataclass
class Listed:
    """Images with their masks, by split, as a reader lists them."""

    splits: dict[str, list[Item]] = field(default_factory=dict)
    ignored: list[Issue] = field(default_factory=list)
    """Files that do not belong to the data, such as masks without an image."""
    issues: list[Issue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, split: str, item: Item) -> None:
        self.splits.setdefault(split, []).append(item)


def pairs_in(root: Path) -> list[Pair]:
    """Return the folders of images and masks: ``images`` and ``masks``, with splits inside or around them; else nothing."""
    images, masks = _named(root, IMAGES), _named(root, MASKS)
    if images and masks:
        splits = {split: folder for folder in folders_of(masks) if (split := split_of(folder.name))}
        inner = [Pair(split, f, splits.get(split)) for f in folders_of(images) if (split := split_of(f.name))]
        return inner or [Pair("all", images, masks)]
    parts = [(split, folder) for folder in folders_of(root) if (split := split_of(folder.name))]
    pairs = [Pair(split, own, _named(part, MASKS)) for split, part in parts if (own := _named(part, IMAGES))]
    return pairs if any(pair.masks for pair in pairs) else []


def read_pairs(root: Path, pairs: Sequence[Pair]) -> Listed:
    """List the images of all pairs with the masks of the same name, whatever the suffix; a split without masks is left out."""
    listed = Listed()
    for split, folder, masks in pairs:
        files = files_below(folder, listed.ignored)
        images, of_masks = [file for file in files if is_image(file)], _by_name(masks, listed)
        listed.ignored += not_images(files)
        names = {_name(image, folder) for image in images}
        if names.isdisjoint(of_masks):
            listed.notes.append(f"no image in {folder.relative_to(root)} has a mask of its name: the folder is left out")
            continue
        for image in images:
            listed.add(split, Item(image.relative_to(root).as_posix(), image, (), of_masks.get(_name(image, folder))))
        listed.ignored += [
            Issue("no-image", str(file), "a mask without an image") for name, file in of_masks.items() if name not in names
        ]
    return listed


def _by_name(masks: Path | None, listed: Listed) -> dict[str, Path]:
    """Return the masks of a folder by `_name`; two of one name become an issue."""
    found: dict[str, Path] = {}
    files = files_below(masks, listed.ignored) if masks else []
    listed.ignored += not_images(files)
    for file in filter(is_image, files):
        first = found.setdefault(_name(file, masks), file)  # type: ignore[arg-type]
        if first != file:
            listed.issues.append(Issue("two-masks", str(file), f"an image has two masks: {first.name} and {file.name}"))
    return found


def _named(folder: Path, names: Sequence[str]) -> Path | None:
    own = {below.name.lower(): below for below in folders_of(folder)}
    return next((own[name] for name in names if name in own), None)


def _name(file: Path, folder: Path) -> str:
    """Return the path of a file in its folder without the suffix."""
    return file.relative_to(folder).with_suffix("").as_posix()
