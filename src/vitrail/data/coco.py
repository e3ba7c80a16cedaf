"""What all of COCO's files of annotations have in common: JSON, and pictures by their numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from vitrail.data.items import Issue
from vitrail.errors import DataError
from vitrail.files import LARGE, read_text


def read_json(file: Path) -> Any:
    """What a JSON file holds; raises `DataError`."""
    try:
        return json.loads(read_text(file, LARGE, encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{file.name} cannot be read: {error.strerror}", where=file, hint="check the path") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name} is no JSON: {error}", where=file, hint="write it again") from None


def pictures_in(listed: list[Any], issues: list[Issue], file: Path) -> dict[int, Mapping[str, Any]]:
    """The pictures by their numbers; an issue for each that has no number or name of its own."""
    pictures: dict[int, Mapping[str, Any]] = {}
    for place, picture in enumerate(listed):
        if not isinstance(picture, dict) or not is_whole(picture.get("id")) or picture["id"] in pictures:
            issues.append(Issue("bad-image", str(file), f"image {place + 1} in the list has no id of its own"))
        elif not isinstance(picture.get("file_name"), str) or not picture["file_name"]:
            issues.append(Issue("bad-image", str(file), f"image {picture['id']} has no file_name"))
        else:
            pictures[picture["id"]] = picture
    return pictures


def is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
