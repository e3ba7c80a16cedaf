"""Boxes that may have people in them, as a detector gives them: in COCO's format for results, or for annotations."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from vitrail.data.coco import read_json
from vitrail.data.csv_rows import NAMED_ENDINGS
from vitrail.data.plan import Extent
from vitrail.data.poses.box_table import detected_boxes
from vitrail.data.poses.people import Box
from vitrail.errors import DataError
from vitrail.settings import brief

LEAST = 1.0
"""Pixels that a box is wide and high at least."""
BEYOND = 1.0
"""How far a box may reach beyond the picture to each side, in widths and heights of the picture."""
PERSON = 1
"""COCO's number of the category."""
SHAPE = 'give a list of {"image": "photo.jpg", or "image_id": 1, "bbox": [left, top, width, height], "score": 0.9}'


class Detection(NamedTuple):
    """A box that may have a person in it."""

    box: Box
    score: float = 1.0
    """How sure it is that it has."""

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Self:
        """Left, top, width and height in pixels, and perhaps a score; raises `DataError` for anything else, and an empty box."""
        try:
            values = [float(number) for number in numbers]
        except (TypeError, ValueError, OverflowError):
            values = []
        if len(values) not in (4, 5) or not all(map(math.isfinite, values)):
            hint = "a box is left, top, width and height, and perhaps a score"
            raise DataError(f"{brief(numbers)} is no box", where="boxes", hint=hint)
        if min(values[2:4]) <= 0:
            sides = ", ".join(f"{side:g}" for side in values[:4])
            raise DataError(f"the box ({sides}) is empty", where="boxes", hint="leave it out, or correct it")
        return cls(Box(*values[:4]), *values[4:])


@dataclass
class Detections:
    """The boxes in a file, by the pictures that they are in."""

    file: Path
    boxes: dict[str | int, list[Detection]] = field(default_factory=dict)
    """By the name of a picture, or by its number."""
    numbers: dict[str, int] = field(default_factory=dict)
    """COCO's number of a picture, by its name, where the file tells both."""
    others: Counter[Any] = field(default_factory=Counter)
    """How many boxes of other categories than a person's are left out, by the category's number."""
    notes: tuple[str, ...] = ()
    """Lines on how a table was read."""

    @classmethod
    def read(cls, file: Path) -> Self:
        """The boxes in JSON: a list of results, or COCO's annotations; or a table with a line for each, see `detected_boxes`.

        What is not called a person is left out, and crowds.

        Raises:
            DataError: no such file, or something in it is no box, or an empty one.
        """
        if file.suffix.lower() in NAMED_ENDINGS:
            return cls._of_table(file)
        found, values, people = cls(file), read_json(file), [PERSON]
        if isinstance(values, dict):
            people = _people(_rows(values.get("categories"), file))
            named = [(one.get("file_name"), one.get("id")) for one in _rows(values.get("images"), file)]
            found.numbers = {str(Path(name)): n for name, n in named if isinstance(name, str) and isinstance(n, int)}
            values = [row for row in _rows(values.get("annotations"), file) if not row.get("iscrowd")]
        name_of = {number: name for name, number in found.numbers.items()}
        for place, row in enumerate(_rows(values, file), 1):
            if (category := row.get("category_id", PERSON)) in people:
                found.keep(row, name_of, place)
            else:
                found.others[brief(category)] += 1
        return found

    @classmethod
    def _of_table(cls, file: Path) -> Self:
        rows, notes = detected_boxes(file)
        found = cls(file, notes=notes)
        for row in rows:
            if row["category"].lower() in ("person", str(PERSON)):
                found.keep(row, {}, row["line"])
            else:
                found.others[brief(row["category"])] += 1
        return found

    def tell(self, note: Callable[[str], object]) -> None:
        """Tell how a table was read, and how many boxes are left out."""
        for line in self.notes:
            note(line)
        if self.others:
            note(f"boxes of other categories than people's are left out: {self._counted}")

    @property
    def _counted(self) -> str:
        return ", ".join(f"{count:,} of category_id {category}" for category, count in self.others.most_common(4))

    def keep(self, row: Mapping[str, Any], name_of: Mapping[int, str], place: int) -> None:
        """Take up what stands at a place of the list."""
        number = row.get("image_id")
        name = row.get("image", row.get("file_name"))
        key = str(Path(name)) if isinstance(name, str) else _key(number, name_of)
        if key is None:
            raise DataError(f"box {place} of the list has no image", where=self.file, hint=SHAPE)
        box = row.get("bbox")
        try:
            if not isinstance(box, list) or len(box) != 4:
                raise DataError(f"{brief(box)} is no box", hint="a bbox is [left, top, width, height]")
            detection = Detection.of([*box, row.get("score", 1.0)])
        except DataError as error:
            where = f"image {key}" if isinstance(key, int) else key
            raise DataError(f"box {place} of the list, in {where}: {error.what}", where=self.file, hint=error.hint) from None
        self.boxes.setdefault(key, []).append(detection)
        if isinstance(key, str) and isinstance(number, int):
            self.numbers.setdefault(key, number)

    def of(self, pictures: Sequence[tuple[Path, int | None]]) -> list[list[Detection]]:
        """The boxes in each of some pictures, of which the numbers may be known; a picture without boxes has none.

        A picture is known by its path, by the end of its path, or by its number. Where that is not known, it may be its name:
        ``000000000139.jpg`` is COCO's image 139.

        Raises:
            DataError: no box is in any of the pictures, or a person's.
        """
        found = [[box for key in self._keys(path, number) for box in self.boxes.get(key, [])] for path, number in pictures]
        if self.others and not self.boxes:
            hint = f"a person's category_id is {PERSON}, or the one that the file's categories have for it; or leave it out"
            raise DataError(f"no box is a person's: {self._counted}", where=self.file, hint=hint)
        if pictures and not any(found):
            hint = "a box tells its picture by image, as the path of the picture ends, or by image_id"
            raise DataError("none of the boxes is in any of the images", where=self.file, hint=hint)
        return found

    def number(self, path: Path) -> int | None:
        """The number of a picture, as the file or the picture's name tells it."""
        return next((self.numbers[name] for name in _names(path) if name in self.numbers), number_in(path))

    def _keys(self, path: Path, number: int | None) -> list[str | int]:
        """What the file may call a picture: by one name, and by one number; its name's only where no number is known."""
        named = next((name for name in (*_names(path), path.stem) if name in self.boxes), None)
        told = number_in(path) if number is None else number
        return [key for key in (named, told) if key is not None and key in self.boxes]


def number_in(path: Path) -> int | None:
    """The number that a picture is called, as COCO's are."""
    return int(path.stem) if path.stem.isascii() and path.stem.isdigit() and len(path.stem) < 19 else None


def _names(path: Path) -> list[str]:
    """A path and its ends, the longest first."""
    return [str(Path(*path.parts[start:])) for start in range(len(path.parts))]


def _key(number: Any, name_of: Mapping[int, str]) -> str | int | None:
    """By what a picture is known that is told by its number, which may be a word."""
    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    return name_of.get(number, number) if isinstance(number, int) else number


def _rows(values: Any, file: Path) -> list[Mapping[str, Any]]:
    """A list of objects; raises `DataError`."""
    if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
        raise DataError(f"{file.name} has no boxes", where=file, hint=SHAPE)
    return values


def _people(categories: list[Mapping[str, Any]]) -> list[Any]:
    """The numbers of the categories that are people: the only one, and any with joints or with the name person."""
    found = [one for one in categories if len(categories) == 1 or one.get("keypoints") or one.get("name") == "person"]
    return [one.get("id") for one in found]


def require_inside(boxes: Sequence[Box], size: Extent, *, where: str | Path) -> None:
    """Refuse boxes that are nowhere in a picture of some width and height, reach far beyond it, or have no size.

    Raises:
        DataError: with the number of the box, from 1.
    """
    for number, box in enumerate(boxes, 1):
        if what := _wrong(box, size):
            shown = ", ".join(f"{side:g}" for side in box)
            hint = f"a box is left, top, width and height in pixels; the upright picture is {size[0]} wide and {size[1]} high"
            raise DataError(f"box {number}, ({shown}), {what}", where=where, hint=hint)


def _wrong(box: Box, size: Extent) -> str:
    """What is wrong with a box; empty where nothing is."""
    if min(box.width, box.height) < LEAST:
        return "is less than a pixel wide or high"
    starts, ends = (box.left, box.top), (box.left + box.width, box.top + box.height)
    if any(start >= side or end <= 0 for start, end, side in zip(starts, ends, size, strict=True)):
        return "is outside of the picture"
    if any(start < -BEYOND * side or end > (1 + BEYOND) * side for start, end, side in zip(starts, ends, size, strict=True)):
        return "reaches far beyond the picture"
    return ""
