"""A check of images and masks: faults, suspicious masks, and a summary of the classes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from vitrail.data.checks.duplicates import leaks
from vitrail.data.checks.found import Found, by, size_line, size_range
from vitrail.data.images.decode import VALUES, Source, decode, decode_with_mode, is_jpeg, mask_image
from vitrail.data.images.plan import Extent
from vitrail.data.items import Issue, Item
from vitrail.errors import DataError
from vitrail.tasks.segmentation.files.coding import UNKNOWN, Coding
from vitrail.tasks.segmentation.files.data import MaskContents
from vitrail.tasks.segmentation.files.folders import NO_MASK
from vitrail.tasks.segmentation.files.sources import read_masks


@dataclass(frozen=True)
class MaskCheck(Found):
    """The result of a check of masks.

    Kinds of issues: ``unreadable`` (an image or a mask), ``no-mask``, ``two-masks``, ``size`` (the mask has another than its
    image), ``no-class`` (values or colours of no class), ``jpeg`` (a lossy mask), ``palette`` (the colours of a palette in place
    of its indices), ``missing-class`` (a class that never occurs in training), ``one-class`` (every mask has one class),
    ``leak`` (the same image in several splits), ``bad-row``, ``bad-image``, ``bad-annotation``, ``missing``. Kinds of notices:
    ``one-class`` (a mask of one class alone), ``missing-class`` (a class that never occurs in another split), ``palette``
    (colours that the table of classes has), ``ignored``.
    """

    most_issues: ClassVar[int | None] = 10

    contents: MaskContents
    issues: list[Issue] = field(default_factory=list)
    notices: list[Issue] = field(default_factory=list)
    sizes: Counter[Extent] = field(default_factory=Counter)
    """Number of images of each width and height."""
    modes: dict[str, list[str]] = field(default_factory=dict)
    """Paths of the masks of each colour mode, by Pillow's names."""
    pixels: dict[str, np.ndarray] = field(default_factory=dict)
    """Pixels of each class and, last, of void in each split, int64 (K + 1,)."""
    images: dict[str, np.ndarray] = field(default_factory=dict)
    """Images with each class and, last, with void in each split, int64 (K + 1,)."""

    @property
    def splits(self) -> dict[str, int]:
        return {split: len(items) for split, items in self.contents.splits.items()}

    def to_json(self) -> dict[str, Any]:
        names = [*self.contents.classes, None]
        return {
            "source": self.contents.source,
            "images": sum(self.splits.values()),
            "classes": self.contents.classes,
            "splits": self.splits,
            "pixels": {split: dict(zip(names[:-1], counts.tolist(), strict=False)) for split, counts in self.pixels.items()},
            "void": {split: int(counts[-1]) for split, counts in self.pixels.items()},
            "images_of_class": {split: dict(zip(names[:-1], n.tolist(), strict=False)) for split, n in self.images.items()},
            "sizes": size_range(self.sizes),
            "modes": {mode: len(paths) for mode, paths in self.modes.items()},
            "notes": list(self.contents.lines),
            **self.listed,
        }

    def lines(self) -> Iterator[str]:
        yield f"source   {self.contents.source}"
        yield f"images   {sum(self.splits.values()):,} with masks of {len(self.contents.classes):,} classes"
        for line in self.contents.lines:
            yield f"note     {line}"
        if self.sizes:
            yield size_line(self.sizes)
        yield "masks    " + ", ".join(f"{mode} {len(paths):,}" for mode, paths in self.modes.items())
        yield ""
        rows = [*self.contents.classes, "void"]
        width = max(map(len, rows)) + 2
        yield " " * width + "".join(f"{split:>18}" for split in self.pixels)
        for place, name in enumerate(rows):
            cells = ((counts[place] / max(1, counts.sum()), self.images[split][place]) for split, counts in self.pixels.items())
            yield f"{name:<{width}}" + "".join(f"{share:>8.2%} in {count:<6,}" for share, count in cells)


def check_masks(
    data: str | Path,
    void: Sequence[str] = (),
    *,
    on_start: Callable[[int], None] = lambda count: None,
    on_image: Callable[[int], None] = lambda count: None,
) -> MaskCheck:
    """Read masks as `open_masks` does, decode every image and mask once, and list all faults.

    ``on_start`` is called with the number of images, ``on_image`` with 1 after each.

    Raises:
        DataError: the data has no masks, or its table of classes is wrong.
    """
    contents = read_masks(data, void)
    found = MaskCheck(contents, list(contents.issues), list(contents.ignored))
    on_start(sum(found.splits.values()))
    for split, items in contents.splits.items():
        for counts in (found.pixels, found.images):
            counts[split] = np.zeros(len(contents.classes) + 1, np.int64)
        for item in items:
            found.issues.extend(_check(item, split, found))
            on_image(1)
    found.issues.extend(_missing(found))
    if contents.coding.by_value and any(mode in VALUES for mode in found.modes):
        what = "the mask has colours, and others have values: a palette was turned to colours; it is read by the table of classes"
        colored = (path for mode, paths in found.modes.items() if mode not in VALUES for path in paths)
        found.notices.extend(Issue("palette", path, what) for path in colored)
    alone = [notice for notice in found.notices if notice.kind == "one-class"]
    if alone and len(alone) == sum(found.splits.values()):
        what = "every mask has one class everywhere: nothing can be learned from it"
        found.issues.append(Issue("one-class", contents.source, what))
    places = [(split, item.name, item.image) for split, items in contents.splits.items() for item in items]
    for (split, name), (other, copy) in leaks(places):
        found.issues.append(Issue("leak", name, f"the same image as {copy}; in the splits {split}, {other}"))
    return found


def _check(item: Item, split: str, found: MaskCheck) -> Iterator[Issue]:
    """Yield the faults of an image and its mask, and add their counts and notices to ``found``."""
    size = None
    try:
        size = decode(item.image).size
        found.sizes[size] += 1
    except DataError as error:
        yield Issue("unreadable", item.name, error.what)
    if item.mask is None:
        yield Issue(NO_MASK, item.name, "the image has no mask")
        return
    where, coding = _path(item.mask), found.contents.coding
    try:
        if is_jpeg(item.mask):
            yield Issue("jpeg", where, _losses(item.mask, coding))
            return
        mask = mask_image(item.mask)
        if mask.mode not in VALUES and not coding.by_color:
            yield Issue("palette", where, _colours(mask))
            return
        found.modes.setdefault(mask.mode, []).append(where)
        indices = coding.indices(mask)
    except (DataError, OSError) as error:
        yield Issue("unreadable", where, error.what if isinstance(error, DataError) else str(error))
        return
    if size and mask.size != size:
        yield Issue("size", where, f"the mask has {by(mask.size)} pixels, its image {by(size)}")
    if strange := coding.strange(mask, indices):
        some = ", ".join(f"{value} ({count:,} pixels)" for value, count in list(strange.items())[:5])
        more = f" and {len(strange) - 5:,} more" if len(strange) > 5 else ""
        yield Issue("no-class", where, f"values of no class: {some}{more}")
    counts = np.bincount(np.where(indices < 0, len(coding.classes), indices).ravel(), minlength=len(coding.classes) + 1)
    found.pixels[split] += counts
    found.images[split] += counts > 0
    if (counts[:-1] > 0).sum() < 2 and not strange:
        name = coding.classes[int(counts[:-1].argmax())] if counts[:-1].any() else "void"
        found.notices.append(Issue("one-class", where, f"{name} everywhere"))


def _losses(mask: Source, coding: Coding) -> str:
    """Return a text on a mask that is a JPEG, with the number of pixels whose value is of no class."""
    image, mode, _ = decode_with_mode(mask)
    image = image.convert("L") if mode in VALUES else image
    what = "a JPEG changes values near the borders of classes"
    if image.mode not in VALUES and not coding.by_color:
        return what
    wrong = int((coding.indices(image) == UNKNOWN).sum())
    total = image.width * image.height
    return f"{what}: {wrong:,} of {total:,} pixels ({wrong / total:.1%}) have a value of no class, and others a wrong class"


def _colours(mask: Image.Image) -> str:
    """Return a text on a mask with colours in place of values."""
    colours = mask.convert("RGB").getcolors(256)
    count = "more than 256 colours" if colours is None else f"{len(colours)} colours"
    what = f"the mask is {mask.mode} with {count}, and the classes are values: a palette was turned to colours"
    return f"{what}; save it as indexed PNG, or add red,green,blue to the table of classes"


def _missing(found: MaskCheck) -> Iterator[Issue]:
    """Yield an issue for each class that never occurs where it is learned, and add notices for other splits."""
    for split, counts in found.pixels.items():
        for name, count in zip(found.contents.classes, counts[:-1].tolist(), strict=True):
            if not count:
                issue = Issue("missing-class", f"{split}/{name}", f"the class {name!r} is in no mask of the split {split!r}")
                if split in ("train", "all"):
                    yield issue
                else:
                    found.notices.append(issue)


def _path(mask: Source) -> str:
    return str(mask) if isinstance(mask, str | Path) else getattr(mask, "name", "mask")
