"""Files of people to read: COCO's JSON with pictures beside it."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

CATEGORY = {"id": 1, "name": "person", "keypoints": ["nose", "left_hip", "right_hip"], "skeleton": [[1, 2], [1, 3]]}
KEYPOINTS = [20, 10, 2, 30.5, 40, 2, 12, 41.25, 1]
"""Of the three joints."""


def picture(file: Path, shade: int = 0, size: tuple[int, int] = (50, 60), **options: Any) -> Path:
    """A picture of one colour."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade % 256, shade // 256, 99)).save(file, **options)
    return file


def annotation(number: int, image: int = 1, **fields: Any) -> dict[str, Any]:
    """A person of COCO's, with ``fields`` in place of what is usual; None leaves one out."""
    values = {"id": number, "image_id": image, "category_id": 1, "iscrowd": 0, "keypoints": KEYPOINTS, "bbox": [5, 6, 30, 40]}
    return {name: value for name, value in {**values, "area": 900, **fields}.items() if value is not None}


def write_coco(file: Path, annotations: list[Any], images: list[Any] | None = None, categories: list[Any] | None = None) -> Path:
    """A JSON file, by default of one picture that is made beside it."""
    if images is None:
        picture(file.parent / "1.png")
        images = [{"id": 1, "file_name": "1.png", "width": 50, "height": 60}]
    values = {"images": images, "annotations": annotations, "categories": [CATEGORY] if categories is None else categories}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
    return file


def write_many(folder: Path, count: int, people: int = 2, *, name: str = "keypoints.json", shade: int = 0) -> Path:
    """A JSON file of so many different pictures, with so many people in each."""
    images = [{"id": number, "file_name": f"{number}.png", "width": 50, "height": 60} for number in range(count)]
    for image in images:
        picture(folder / image["file_name"], shade + image["id"])
    return write_coco(folder / name, [annotation(n, n // people) for n in range(count * people)], images)
