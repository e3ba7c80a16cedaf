"""Cropping of the people in an image by their boxes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.images.decode import Source
from vitrail.data.images.plan import Extent
from vitrail.data.images.warp import Warp
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Note
from vitrail.runtime.processes import Processes
from vitrail.tasks.pose.files.detections import Detection, counted_errors, errors_outside
from vitrail.tasks.pose.files.suspicions import corners_note

Boxes = Sequence[Sequence[float]] | np.ndarray
"""Boxes in one image: left, top, width and height in pixels, and optionally a score."""
SEEN = 1000
"""Maximum number of boxes that `corners_note` judges."""


class Framed(NamedTuple):
    """An image and the boxes in it."""

    picture: Source
    boxes: Sequence[Detection] | None = None
    """Boxes of the people; None if the full image is one person."""
    number: int | None = None
    """COCO's image id, or None if it is unknown."""

    @property
    def people(self) -> int:
        """Number of people, as a measure of work: at least 1, since an image without boxes takes time as well."""
        return 1 if self.boxes is None else max(1, len(self.boxes))


class CutOut(NamedTuple):
    """People that were cropped from an image."""

    boxes: Sequence[Detection]
    warps: Sequence[Warp]
    pixels: Sequence[np.ndarray]
    """uint8 (C, H, W) each."""
    size: Extent
    """Size of the image."""
    framed: Framed
    """The image with all boxes, including skipped ones."""
    wrong: Sequence[DataError] = ()
    """Errors of skipped boxes."""


@dataclass
class BoxReport:
    """Collected problems of a file's boxes, found when their images are opened."""

    wrong: list[DataError] = field(default_factory=list)
    """Errors of skipped boxes."""
    boxes: list[tuple[Box, Extent]] = field(default_factory=list)
    """Boxes with the sizes of their images, at most `SEEN`."""
    kept: int = 0
    """Number of boxes that were not skipped."""

    def add(self, pictures: Sequence[CutOut]) -> None:
        """Collect the boxes of some images."""
        self.wrong += [error for cut in pictures for error in cut.wrong]
        self.kept += sum(len(cut.boxes) for cut in pictures)
        self.boxes += [(box, cut.size) for cut in pictures for box, _ in cut.framed.boxes or ()][: SEEN - len(self.boxes)]

    def tell(self, note: Note, group: Processes) -> None:
        """Report skipped boxes, and boxes that seem to be corners; raises `DataError` if all boxes were skipped."""
        wrong, boxes = group.gathered(self.wrong), group.gathered(self.boxes)
        if wrong and not any(group.gathered([self.kept])):
            raise wrong[0]
        if wrong:
            note(f"boxes that are left out: {counted_errors(wrong)}")
        if what := corners_note(boxes):
            note(what)


def cut_out(preparation: BoxPreparation, framed: Framed, *, strict: bool) -> CutOut:
    """Crop the people from an image, which is decoded once; raises `DataError`, with ``strict`` also for a box outside."""
    source, given, _ = framed
    image = preparation.decode(source)
    boxes = [Detection(Box.of_picture(image.size))] if given is None else given
    wrong = errors_outside([box for box, _ in boxes], image.size, where=source if isinstance(source, Path) else "image")
    if wrong and strict:
        raise next(iter(wrong.values()))
    boxes = [box for place, box in enumerate(boxes) if place not in wrong]
    pixels, warps = [preparation.cut_out(image, box) for box, _ in boxes], [preparation.warp(box) for box, _ in boxes]
    name = Path(str(source)).name
    errors = [DataError(f"{name}: {error.what}", where=error.where, hint=error.hint) for error in wrong.values()]
    return CutOut(boxes, warps, pixels, image.size, framed, errors)


def boxes_of(boxes: Boxes | Sequence[Boxes] | None, count: int) -> list[list[Detection] | None]:
    """Return the boxes of each of ``count`` images; raises `ConfigError` if the lists do not fit."""
    if boxes is None:
        return [None] * count
    if isinstance(boxes, str | bytes | Path) or any(isinstance(box, Real) for box in boxes):
        hint = "give a list of boxes for each image, such as [[48, 20, 110, 260]]"
        hint += "; a file of them goes to vitrail predict --boxes"
        raise ConfigError("boxes must be a list of boxes", where="boxes", hint=hint)
    single = count == 1 and (len(boxes) == 0 or (len(boxes[0]) > 0 and isinstance(boxes[0][0], Real)))
    each = [boxes] if single else list(boxes)
    if len(each) != count:
        what = f"there are boxes for {len(each)} images, and {count} images"
        raise ConfigError(what, where="boxes", hint="give a list of boxes for each image")
    return [[Detection.of(box) for box in cast(Boxes, some)] for some in each]


def numbers_of(own: Iterable[int | None]) -> list[int]:
    """Return an id for each image: the known ids if all are known and different, else 1, 2, 3, …"""
    numbers = list(own)
    known = [number for number in numbers if number is not None]
    return known if len(set(known)) == len(numbers) else list(range(1, len(numbers) + 1))
