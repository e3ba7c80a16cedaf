"""Masks in COCO's instance format: polygons and run-length codes of objects, drawn as one mask for each image.

An image without an object, and every pixel outside of all objects, is of the class ``background``. A smaller object is drawn over
a larger one. Crowds are void: their outlines are rough, and have gaps.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.images.decode import upright_size
from vitrail.data.images.plan import Extent
from vitrail.data.items import Issue, Item
from vitrail.data.readers.image_names import MissingImages, find_image, folder_of
from vitrail.data.tables.coco import is_crowd, number_of, pictures_in, read_json, whole
from vitrail.errors import DataError
from vitrail.settings import brief
from vitrail.tasks.segmentation.files.coding import VOID, WIDE_VOID, Row
from vitrail.tasks.segmentation.files.folders import Listed
from vitrail.tasks.segmentation.files.shapes import Drawing, Polygons, Runs

BACKGROUND = "background"
FORMAT = "a file in COCO's format has images, annotations with segmentation and category_id, and categories with id and name"
Shapes = list[tuple[int, Polygons | Runs]]


def read_coco(file: Path) -> tuple[list[Row], Listed]:
    """Read the classes of a COCO file, and its images with their masks, in the split "all".

    Raises:
        DataError: the file is in another format. Faults of single annotations are returned as issues.
    """
    values = read_json(file)
    if not isinstance(values, dict) or not all(
        isinstance(values.get(name), list) for name in ("images", "annotations", "categories")
    ):
        raise DataError(f"{file.name} has no images, annotations and categories", where=file, hint=FORMAT)
    found = Listed()
    names = _categories(values["categories"], file)
    rows = [Row(BACKGROUND, 0), *(Row(name, number) for number, name in enumerate(names.values(), 1))]
    void = VOID if len(rows) <= VOID else WIDE_VOID
    pictures = pictures_in(values["images"], found.issues, file)
    folder = folder_of(file, [picture["file_name"] for picture in pictures.values()])
    value_of = {number: place for place, number in enumerate(names, 1)}
    places, missing = {}, MissingImages(folder)
    for number, picture in pictures.items():
        if image := find_image(folder, picture["file_name"]):
            places[number] = image
        else:
            what = f"there is no such image{missing.near(picture['file_name'])}"
            found.issues.append(Issue("missing", str(folder / picture["file_name"]), what))
    sizes = {number: _size(pictures[number], image) for number, image in places.items()}
    shapes = _shapes(values["annotations"], value_of, sizes, void, found, file)
    for number, image in places.items():
        own = sorted(shapes.get(number, []), key=lambda pair: (pair[0] != void, -pair[1].area))
        drawing = Drawing(f"{image} in {file.name}", sizes[number], tuple(own))
        found.add("all", Item(pictures[number]["file_name"], image, (), drawing))
    return rows, found


def _categories(listed: list[Any], file: Path) -> dict[int, str]:
    names = {whole(one.get("id")): one.get("name") for one in listed if isinstance(one, dict)}
    if (
        not names
        or None in names
        or len(names) != len(listed)
        or not all(isinstance(name, str) and name for name in names.values())
    ):
        raise DataError("every category needs an id of its own and a name", where=file, hint=FORMAT)
    return {number: str(names[number]) for number in sorted(number for number in names if number is not None)}


def _size(picture: Mapping[str, Any], image: Path) -> Extent:
    width, height = whole(picture.get("width")), whole(picture.get("height"))
    try:
        return (width, height) if width and height and min(width, height) > 0 else upright_size(image)
    except DataError:
        return 1, 1  # the check of images reports that it is unreadable


def _shapes(
    annotations: list[Any], value_of: Mapping[int, int], sizes: Mapping[int, Extent], void: int, found: Listed, file: Path
) -> dict[int, Shapes]:
    """Return the values and shapes of the annotations of each image."""
    shapes: dict[int, Shapes] = {}
    count = Counter[str]()
    for place, annotation in enumerate(annotations, 1):
        try:
            if not isinstance(annotation, dict):
                raise ValueError("it is no JSON object")
            image, category = whole(annotation.get("image_id")), whole(annotation.get("category_id"))
            if category is None or category not in value_of:
                raise ValueError(f"its category_id {brief(annotation.get('category_id'))} is of no category")
            if image is None or image not in sizes:
                count["of images that are not there"] += 1
            elif not annotation.get("segmentation"):
                count["without a segmentation"] += 1
            else:
                crowd = is_crowd(annotation)
                count["of crowds, which are void"] += crowd
                shape = _shape(annotation["segmentation"], sizes[image])
                shapes.setdefault(image, []).append((void if crowd else value_of[category], shape))
        except ValueError as error:
            number = annotation.get("id", place) if isinstance(annotation, dict) else place
            found.issues.append(Issue("bad-annotation", str(file), f"annotation {number}: {error}"))
    found.notes += [f"annotations {what}: {number:,}" for what, number in count.items() if number]
    return shapes


def _shape(segmentation: Any, size: Extent) -> Polygons | Runs:
    """Return the shape of an annotation; raises `ValueError` for other values."""
    if isinstance(segmentation, list):
        return Polygons(tuple(map(_polygon, segmentation)))
    counts = segmentation.get("counts") if isinstance(segmentation, dict) else None
    if isinstance(counts, list) and all(isinstance(length, int) for length in counts):
        counts = tuple(counts)
    if not isinstance(counts, str | tuple) or segmentation.get("size") != [size[1], size[0]]:
        what = "counts and the size of its image" if isinstance(segmentation, dict) else "polygons nor a run-length code"
        raise ValueError(f"its segmentation {brief(segmentation)} has no {what}, {size[1]}×{size[0]}")
    return Runs(counts, size)


def _polygon(flat: Any) -> np.ndarray:
    numbers = list(map(number_of, flat)) if isinstance(flat, list) else []
    if len(numbers) < 6 or len(numbers) % 2 or None in numbers:
        raise ValueError(f"its polygon {brief(flat)} is not three points or more, x and y each")
    return np.array(numbers, np.float64).reshape(-1, 2)
