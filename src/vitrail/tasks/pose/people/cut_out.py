"""The people of a picture, cut out by their boxes."""

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
"""Of one picture: left, top, width and height in pixels of each, and perhaps a score."""
SEEN = 1000
"""Boxes by which it is judged whether they are corners."""


class Framed(NamedTuple):
    """A picture and the boxes in it."""

    picture: Source
    boxes: Sequence[Detection] | None = None
    """None where the picture is one person from rim to rim."""
    number: int | None = None
    """COCO's number of the picture, where one is known."""

    @property
    def people(self) -> int:
        """How many people are looked for in it; one that has no boxes takes time too."""
        return 1 if self.boxes is None else max(1, len(self.boxes))


class CutOut(NamedTuple):
    """The people that were cut out of a picture."""

    boxes: Sequence[Detection]
    warps: Sequence[Warp]
    pixels: Sequence[np.ndarray]
    """uint8 (C, H, W) each."""
    size: Extent
    """Of the picture."""
    framed: Framed
    """The picture, with boxes from outside that are left out."""
    wrong: Sequence[DataError] = ()
    """Why boxes are left out."""


@dataclass
class BoxReport:
    """What is seen of the boxes in a file when their pictures are opened."""

    wrong: list[DataError] = field(default_factory=list)
    """Why boxes are left out."""
    boxes: list[tuple[Box, Extent]] = field(default_factory=list)
    """Boxes with the sizes of their pictures, not more than `SEEN`."""
    kept: int = 0
    """Boxes that people are looked for in."""

    def add(self, pictures: Sequence[CutOut]) -> None:
        """Take up the boxes in some pictures."""
        self.wrong += [error for cut in pictures for error in cut.wrong]
        self.kept += sum(len(cut.boxes) for cut in pictures)
        self.boxes += [(box, cut.size) for cut in pictures for box, _ in cut.framed.boxes or ()][: SEEN - len(self.boxes)]

    def tell(self, note: Note, group: Processes) -> None:
        """Tell which boxes are left out, and whether they are corners; raises `DataError` where no box is left."""
        wrong, boxes = group.gathered(self.wrong), group.gathered(self.boxes)
        if wrong and not any(group.gathered([self.kept])):
            raise wrong[0]
        if wrong:
            note(f"boxes that are left out: {counted_errors(wrong)}")
        if what := corners_note(boxes):
            note(what)


def cut_out(preparation: BoxPreparation, framed: Framed, *, strict: bool) -> CutOut:
    """Cut out the people in a picture, which is decoded once; raises `DataError`, if ``strict`` for a box outside, too."""
    source, given, _ = framed
    image = preparation.decode(source)
    boxes = [Detection(Box.of_picture(image.size))] if given is None else given
    wrong = errors_outside([box for box, _ in boxes], image.size, where=source if isinstance(source, Path) else "image")
    if wrong and strict:
        raise next(iter(wrong.values()))
    boxes = [box for place, box in enumerate(boxes) if place not in wrong]
    pixels, warps = [preparation.cut_out(image, box) for box, _ in boxes], [preparation.warp(box) for box, _ in boxes]
    errors = [_in_picture(error, source) for error in wrong.values()]
    return CutOut(boxes, warps, pixels, image.size, framed, errors)


def _in_picture(error: DataError, source: Source) -> DataError:
    """An error about a box that names its picture."""
    return DataError(f"{Path(str(source)).name}: {error.what}", where=error.where, hint=error.hint)


def boxes_of(boxes: Boxes | Sequence[Boxes] | None, count: int) -> list[list[Detection] | None]:
    """The boxes of each of so many pictures, as they may be given."""
    if boxes is None:
        return [None] * count
    if isinstance(boxes, str | bytes | Path) or any(isinstance(box, Real) for box in boxes):
        hint = (
            "give a list of boxes for each picture, such as [[48, 20, 110, 260]]; a file of them goes to vitrail predict --boxes"
        )
        raise ConfigError("that is no list of boxes", where="boxes", hint=hint)
    single = count == 1 and (len(boxes) == 0 or (len(boxes[0]) > 0 and isinstance(boxes[0][0], Real)))
    each = [boxes] if single else list(boxes)
    if len(each) != count:
        what = f"there are boxes for {len(each)} pictures, and {count} pictures"
        raise ConfigError(what, where="boxes", hint="give a list of boxes for each picture")
    return [[Detection.of(box) for box in cast(Boxes, some)] for some in each]


def numbers_of(told: Iterable[int | None]) -> list[int]:
    """A number for each picture: as it is told where each has one of its own, else counted from 1."""
    numbers = list(told)
    known = [number for number in numbers if number is not None]
    return known if len(set(known)) == len(numbers) else list(range(1, len(numbers) + 1))
