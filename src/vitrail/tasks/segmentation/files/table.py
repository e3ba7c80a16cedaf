"""Images and masks listed in a table: ``image,mask[,split]``."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vitrail.data.items import Issue, Item
from vitrail.data.readers.image_names import MissingImages, find_image, folder_of
from vitrail.data.tables.csv_rows import IMAGE, SPLIT, Columns, column_of, listed, split_in
from vitrail.data.tables.json_rows import open_table
from vitrail.errors import DataError
from vitrail.tasks.segmentation.files.folders import Listed

MASK = ("masks", "mask_path", "mask_file", "mask_name", "segmentation")
"""Other names of the column ``mask``."""


def read_table(file: Path) -> Listed:
    """List the images of a table with their masks; paths are relative to `folder_of` each. An empty cell is no mask.

    Raises:
        DataError: the file is no such table. Faults of single rows are returned as issues.
    """
    table, found = open_table(file, columns_of), Listed()
    rows = list(table.rows())
    folders = {word: folder_of(file, [row.cells[word] for row in rows if not row.problem]) for word in ("image", "mask")}
    missing = {word: MissingImages(folder) for word, folder in folders.items()}
    names = set[str]()
    for line, cells, problem in rows:
        try:
            if problem or not cells["image"] or cells["image"] in names:
                raise ValueError(problem or (f"{cells['image']} is listed twice" if cells["image"] else "the row names no image"))
            split, paths = split_in(cells), dict[str, Path]()
            for word in ("image", "mask"):
                if name := cells[word]:
                    if (path := find_image(folders[word], name)) is None:
                        raise ValueError(f"there is no file {folders[word] / name}{missing[word].near(name)}")
                    paths[word] = path
        except ValueError as error:
            found.issues.append(Issue("bad-row", f"{file}:{line}", str(error)))
            continue
        names.add(cells["image"])
        found.add(split, Item(cells["image"], paths["image"], (), paths.get("mask")))
    found.notes += table.notes()
    return found


def has_masks(file: Path) -> bool:
    """Return whether a table has the columns of images and masks."""
    try:
        return bool(open_table(file, columns_of).names)
    except DataError:
        return False


def columns_of(names: Sequence[str]) -> Columns:
    """Return the columns of images, masks and splits; raises `DataError` without images or masks."""
    find = partial(column_of, names)
    own = {"image": find("image", IMAGE), "mask": find("mask", MASK), "split": find("split", SPLIT)}
    for word in ("image", "mask"):
        if own[word] is None:
            raise DataError(
                f"no columns are called {word!r}; there are {listed(names)}", hint="the columns are image,mask[,split]"
            )
    return {word: name for word, name in own.items() if name}
