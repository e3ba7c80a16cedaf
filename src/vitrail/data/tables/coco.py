"""Common parts of reading COCO's annotation files: JSON, and images by their ids."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

from vitrail.data.items import Issue
from vitrail.errors import DataError
from vitrail.files import LARGE, read_text
from vitrail.settings import brief

MOST = 2.0**31
"""Upper bound of coordinates in pixels."""
WHOLE = re.compile(r"([+-]?[0-9]{1,19})(\.0*)?", re.ASCII)
"""An integer in a text, perhaps as ``1.0``: tables write this in columns with empty cells."""


def read_json(file: Path) -> Any:
    """Read a JSON file; raises `DataError` if it is missing or not JSON."""
    try:
        return json.loads(read_text(file, LARGE, encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{file.name} cannot be read: {error.strerror}", where=file, hint="check the path") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name} is no JSON: {error}", where=file, hint="write it again") from None


def pictures_in(listed: list[Any], issues: list[Issue], file: Path) -> dict[int, Mapping[str, Any]]:
    """Return the images by their ids; an image without a unique id or without a file name becomes one of ``issues``."""
    pictures: dict[int, Mapping[str, Any]] = {}
    for place, picture in enumerate(listed):
        number = whole(picture.get("id")) if isinstance(picture, dict) else None
        if number is None or number in pictures:
            issues.append(Issue("bad-image", str(file), f"image {place + 1} in the list has no id of its own"))
        elif not isinstance(picture.get("file_name"), str) or not picture["file_name"]:
            issues.append(Issue("bad-image", str(file), f"image {number} has no file_name"))
        else:
            pictures[number] = picture
    return pictures


def one_spelling(name: str) -> str:
    """Return an image's name in a canonical form: with ``/`` for ``\\``, and in Unicode's form NFC."""
    return str(Path(normalize("NFC", name.replace("\\", "/"))))


def whole(value: Any) -> int | None:
    """Return an integer, which may be written as ``1.0`` or ``"1"``; None for any other value."""
    if isinstance(value, str):
        written = WHOLE.fullmatch(value.strip())
        return int(written[1]) if written else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: Any) -> float | None:
    """Return a coordinate in pixels, which may be written as text; None for any other value."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST else None


def is_crowd(annotation: Mapping[str, Any]) -> bool:
    """Return True for an annotation of a crowd; raises `ValueError` if ``iscrowd`` is neither 0 nor 1."""
    value = annotation.get("iscrowd")
    number = 0 if value is None else int(value) if isinstance(value, bool) else whole(value)
    if number not in (0, 1):
        raise ValueError(f"its iscrowd is {brief(value)}, expected 0 or 1")
    return number == 1
