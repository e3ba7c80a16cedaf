"""Annotation formats of other tools, which are refused with a hint on how to convert them."""

import re
from pathlib import Path
from typing import Any

from vitrail.errors import DataError
from vitrail.files import text_file

DEEPLABCUT = ("scorer", "individuals", "bodyparts", "coords")
"""First cells of the header lines in DeepLabCut's tables."""
OTHERS = (
    ({"data", "annotations"}, "Label Studio's own JSON", "export it there in the format COCO"),
    ({"data", "completions"}, "Label Studio's own JSON", "export it there in the format COCO"),
    ({"annotator", "lead_time"}, "Label Studio's short JSON", "export it there in the format COCO"),
    ({"image_id", "category_id"}, "a list of results in COCO's format", "give a file of annotations; results are --boxes"),
    ({"shapes", "imagePath"}, "LabelMe's JSON of one image", "convert all of them to one file in COCO's format for keypoints"),
    ({"_via_img_metadata"}, "a project of the VGG Image Annotator", "export the annotations there in COCO's format"),
)
"""Keys of other tools' JSON, the name of the format, and how to convert it."""


def refuse_other_json(file: Path, values: Any) -> None:
    """Raise `DataError` for JSON of a known other tool, with a hint on how to convert it."""
    first = values[0] if isinstance(values, list) and values else values
    keys = set(first) if isinstance(first, dict) else set()
    for own, whose, way in OTHERS:
        if own <= keys:
            raise DataError(f"{file.name} is {whose}, which is not read", where=file, hint=way)


def is_deeplabcut(file: Path) -> bool:
    """Return whether a table begins with DeepLabCut's header lines."""
    try:
        with text_file(file) as text:
            firsts = [re.split("[,;\t]", text.readline(1000))[0].strip().strip('"') for _ in range(2)]
    except (OSError, UnicodeDecodeError):
        return False
    return firsts[0] == DEEPLABCUT[0] and firsts[1] in DEEPLABCUT


def refuse_deeplabcut(file: Path) -> None:
    """Raise `DataError` for a table of DeepLabCut, with a hint on how to convert it."""
    if is_deeplabcut(file):
        what = f"{file.name} is a table of DeepLabCut, whose header of several lines (scorer, bodyparts, coords) is not read"
        hint = "write it with one header line, image,nose_x,nose_y,…, and a line for each animal; docs/pose.md shows how"
        raise DataError(what, where=file, hint=hint)
