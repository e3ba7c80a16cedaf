"""A detector's boxes of people, in COCO's format for results or annotations, or in a table."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.plan import Extent
from vitrail.data.readers.tree import files_of, is_image
from vitrail.data.tables.coco import is_crowd, one_spelling, read_json, whole
from vitrail.data.tables.csv_rows import NAMED_ENDINGS, text_lines
from vitrail.errors import DataError
from vitrail.settings import brief
from vitrail.tasks.pose.files.box_table import detected_boxes

LEAST, BEYOND = 1.0, 1.0
"""Least width and height of a box in pixels, and how far it may reach beyond the image, in widths and heights of the image."""
PERSON = 1
"""COCO's category id of people."""
MOST_REASONS = 5
"""Maximum number of reasons in a note on skipped boxes."""
SHAPE = 'give a list of {"image": "photo.jpg", or "image_id": 1, "bbox": [left, top, width, height], "score": 0.9}'


class Detection(NamedTuple):
    """A detected box that may contain a person."""

    box: Box
    score: float = 1.0

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Self:
        """Create a box from left, top, width, height in pixels, perhaps a score; raises `DataError` if invalid or empty."""
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
    """The boxes in a file, by image."""

    file: Path
    boxes: dict[str | int, list[Detection]] = field(default_factory=dict)
    """Boxes by the name or by the id of an image."""
    numbers: dict[str, int] = field(default_factory=dict)
    """COCO's image id by image name, if the file has both."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of skipped boxes by reason."""
    wrong: list[DataError] = field(default_factory=list)
    """Errors of entries that are not a box, or an empty one; these entries are skipped."""
    notes: tuple[str, ...] = ()
    """Notes on how a table was read."""

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read boxes from JSON (a list of results, or COCO's annotations), or from a table, see `detected_boxes`.

        Crowds and other categories than people are skipped.

        Raises:
            DataError: the file is missing or contains no box.
        """
        if file.suffix.lower() in NAMED_ENDINGS and not _is_json(file):
            return cls._of_table(file)
        found, values, people = cls(file), read_json(file), [PERSON]
        if isinstance(values, dict):
            people = _people(_rows(values.get("categories", []), file)) or people
            named = [(one.get("file_name"), whole(one.get("id"))) for one in _rows(values.get("images", []), file)]
            found.numbers = {one_spelling(name): n for name, n in named if isinstance(name, str) and n is not None}
            values = values.get("annotations")
        name_of = {number: name for name, number in found.numbers.items()}
        for place, row in enumerate(_rows(values, file), 1):
            category = row.get("category_id")
            if category is not None and whole(category) not in people:
                found.left_out[f"of category_id {brief(category)}"] += 1
            else:
                found._keep_or_count(row, name_of, place)
        return found._not_all_wrong()

    @classmethod
    def _of_table(cls, file: Path) -> Self:
        rows, wrong, notes = detected_boxes(file)
        found = cls(file, wrong=wrong, notes=notes)
        for row in rows:
            if row["category"].lower() in ("person", str(PERSON)):
                found._keep_or_count(row, {}, row["line"])
            else:
                found.left_out[f"of category {brief(row['category'])}"] += 1
        return found._not_all_wrong()

    def _keep_or_count(self, row: Mapping[str, Any], name_of: Mapping[int, str], place: int) -> None:
        try:
            if is_crowd(row):
                self.left_out["of crowds"] += 1
            else:
                self.keep(row, name_of, place)
        except ValueError as error:
            self.wrong.append(DataError(f"box {place} of the list: {error}", where=self.file, hint=SHAPE))
        except DataError as error:
            self.wrong.append(error)

    def _not_all_wrong(self) -> Self:
        if self.wrong and not self.boxes:
            raise self.wrong[0]
        return self

    def tell(self, note: Callable[[str], object]) -> None:
        """Report how a table was read, and how many boxes are skipped and why."""
        for line in self.notes:
            note(line)
        if self.left_out:
            note(f"boxes of {self.file.name} that are left out: {self._counted}")
        if self.wrong:
            note(f"boxes of {self.file.name} that are left out because they are none: {counted_errors(self.wrong)}")

    @property
    def _counted(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common(MOST_REASONS))

    def keep(self, row: Mapping[str, Any], name_of: Mapping[int, str], place: int) -> None:
        """Add the entry at a position of the list; raises `DataError` if it is not a box."""
        number = whole(row.get("image_id"))
        name = row.get("image", row.get("file_name"))
        key = one_spelling(name) if isinstance(name, str) else _key(row.get("image_id"), name_of)
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
        if isinstance(key, str) and number is not None:
            self.numbers.setdefault(key, number)

    def of(self, pictures: Sequence[tuple[Path, int | None]]) -> list[list[Detection]]:
        """Return the boxes of each image, given as paths with their ids or None.

        An image is found by its path, by the end of its path, or by its id. An unknown id is read from the name:
        ``000000000139.jpg`` is COCO's image 139.

        Raises:
            DataError: no box is of a person, or none is in these images or in one in the folder of the first.
        """
        found = [[box for key in self._keys(path, number) for box in self.boxes.get(key, [])] for path, number in pictures]
        if self.left_out and not self.boxes:
            hint = f"a person's category_id is {PERSON}, or the one that the file's categories have for it; or leave it out"
            raise DataError(f"no box is a person's: {self._counted}", where=self.file, hint=hint)
        if pictures and not any(found) and not self._knows(pictures):
            hint = "name each box's image by image, with the end of its path, or by image_id"
            raise DataError("none of the boxes is in any of the images", where=self.file, hint=hint)
        return found

    def tell_of_empty(self, boxes: Sequence[Sequence[Detection]], note: Callable[[str], object]) -> None:
        """Report how many images have no box, among those for which `of` returned ``boxes``."""
        if empty := sum(not some for some in boxes):
            note(f"{self.file.name} has no box in {empty:,} of {len(boxes):,} images: nobody is looked for there")

    def _knows(self, pictures: Sequence[tuple[Path, int | None]]) -> bool:
        """Return True if the file names one of these images, has boxes for one in their folder, or has no boxes."""
        if not self.boxes or any(name in self.numbers for path, _ in pictures for name in names_of(path)):
            return True
        return any(self._keys(file, None) for file in files_of(pictures[0][0].parent) if is_image(file))

    def number(self, path: Path) -> int | None:
        """Return the id of an image, from the file or from the image's name."""
        return next((self.numbers[name] for name in names_of(path) if name in self.numbers), number_in(path))

    def _keys(self, path: Path, number: int | None) -> list[str | int]:
        """Return the keys of an image in the file: one name and one id; the id in its name only if no other is known."""
        named = next((name for name in (*names_of(path), one_spelling(path.stem)) if name in self.boxes), None)
        number = number_in(path) if number is None else number
        return [key for key in (named, number) if key is not None and key in self.boxes]


def _is_json(file: Path) -> bool:
    with text_lines(file) as lines:
        return next(iter(lines), "").lstrip("\ufeff \t").startswith(("[", "{"))


def number_in(path: Path) -> int | None:
    """Return the id in an image's name, as in COCO."""
    return int(path.stem) if path.stem.isascii() and path.stem.isdigit() and len(path.stem) < 19 else None


def names_of(path: Path) -> list[str]:
    """Return a path and all its ends, longest first, in normalised spelling."""
    return [one_spelling(str(Path(*path.parts[start:]))) for start in range(len(path.parts))]


def _key(number: Any, name_of: Mapping[int, str]) -> str | int | None:
    """Return the key of an image from its id, which may be text."""
    plain = whole(number)
    if isinstance(number, str) and str(plain) != number.strip().partition(".")[0]:  # "0139" may be a file name
        return one_spelling(number)
    if plain is None:
        return None
    return name_of.get(plain, plain)


def counted_errors(errors: Sequence[DataError]) -> str:
    """Return the number of errors, with the first one's text."""
    return f"{len(errors):,} ({errors[0].what}{'; and others' if len(errors) > 1 else ''})"


def _rows(values: Any, file: Path) -> list[Mapping[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
        raise DataError(f"{file.name} has no boxes", where=file, hint=SHAPE)
    return values


def _people(categories: list[Mapping[str, Any]]) -> list[int]:
    """Return the ids of people's categories: the only category, and those with keypoints or named person."""
    found = [one for one in categories if len(categories) == 1 or one.get("keypoints") or one.get("name") == "person"]
    return [number for one in found if (number := whole(one.get("id"))) is not None]


def require_inside(boxes: Sequence[Box], size: Extent, *, where: str | Path) -> None:
    """Raise `DataError` for a box outside an image of this size, far beyond it, or smaller than a pixel."""
    if errors := errors_outside(boxes, size, where=where):
        raise next(iter(errors.values()))


def errors_outside(boxes: Sequence[Box], size: Extent, *, where: str | Path) -> dict[int, DataError]:
    """Return the errors of `require_inside` by the index of the box."""
    errors: dict[int, DataError] = {}
    for place, box in enumerate(boxes):
        if what := _wrong(box, size):
            shown = ", ".join(f"{side:g}" for side in box)
            hint = f"a box is left, top, width and height in pixels; the upright picture is {size[0]} wide and {size[1]} high"
            errors[place] = DataError(f"box {place + 1}, ({shown}), {what}", where=where, hint=hint)
    return errors


def _wrong(box: Box, size: Extent) -> str:
    if min(box.width, box.height) < LEAST:
        return "is less than a pixel wide or high"
    starts, ends = (box.left, box.top), (box.left + box.width, box.top + box.height)
    if any(start >= side or end <= 0 for start, end, side in zip(starts, ends, size, strict=True)):
        return "is outside of the picture"
    if any(start < -BEYOND * side or end > (1 + BEYOND) * side for start, end, side in zip(starts, ends, size, strict=True)):
        return "reaches far beyond the picture"
    return ""
