"""Opening of images with masks: from the ``--data`` argument of segmentation to named splits."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vitrail.data.items import SPLITS
from vitrail.data.readers.split_files import split_files
from vitrail.data.readers.tree import files_of, unlisted_notes
from vitrail.data.splits import SHARES, Assignment, named_apart, with_splits
from vitrail.data.tables.csv_rows import ENDINGS, NAMED_ENDINGS
from vitrail.errors import DataError
from vitrail.files import path_of
from vitrail.tasks.segmentation.files.classes import CLASSES, classes_in, read_classes
from vitrail.tasks.segmentation.files.coco import read_coco
from vitrail.tasks.segmentation.files.coding import Coding, Row
from vitrail.tasks.segmentation.files.data import MaskContents, SegmentationData
from vitrail.tasks.segmentation.files.folders import IMAGES, MASKS, Listed, pairs_in, read_pairs
from vitrail.tasks.segmentation.files.table import has_masks, read_table

HINT = f"give a folder with {IMAGES[0]}/ and {MASKS[0]}/, a table image,mask, or COCO's JSON; see docs/segmentation.md"


def open_masks(
    source: str | Path,
    *,
    void: Sequence[str] = (),
    split_seed: int = 0,
    shares: Mapping[str, float] = SHARES,
    assignment: Assignment | None = None,
) -> SegmentationData:
    """Open images and their masks with their splits.

    Args:
        source: a folder with ``images`` and ``masks``, with or without splits; a table ``image,mask[,split]``; COCO's JSON; or
            a folder with one of these.
        void: names, values or colours of classes that are void, beside 255 and `VOID_NAMES`.
        split_seed: seed for splitting data without splits.
        shares: fractions of test and validation in such data; {"test": 0.2, "val": 0.1} by default.
        assignment: an earlier split to repeat.

    Raises:
        DataError: there are no masks, or the data has faults.
    """
    contents = read_masks(source, void)
    if contents.issues:
        first, *others = contents.issues
        what = first.what + (f" (and {len(others):,} more faults)" if others else "")
        hint = f"vitrail data check {shlex.quote(contents.source)} --task segment lists all faults"
        raise DataError(what, where=first.path, hint=hint)
    made = with_splits(contents, split_seed, assignment, shares)
    return SegmentationData(**vars(made), coding=contents.coding)


def read_masks(source: str | Path, void: Sequence[str] = ()) -> MaskContents:
    """Read the contents of a data set of masks, including faults that `open_masks` refuses; raises `DataError` if it has none."""
    path = require_there(source)
    rows, read, files = _read(path)
    listed, where = _joined(read), path if path.is_dir() else path.parent
    masks = [item.mask for items in listed.splits.values() for item in items if item.mask is not None]
    if not masks and not (rows and listed.issues):
        raise _no_masks(path, listed)
    table = where / CLASSES
    by_values = not rows and not table.is_file()
    rows = rows or (classes_in(masks, where) if by_values else read_classes(table))
    if by_values:
        listed.notes.append(f"there is no {CLASSES}: the classes are the {len(rows):,} values of the masks")
    if path.is_dir() and files:
        items = [item for items in listed.splits.values() for item in items]
        own = [file for item in items for file in (item.image, item.mask) if isinstance(file, Path)]
        listed.notes += unlisted_notes(path, [*own, *files, table])
    coding = Coding.of(rows, void, where=table)
    if by_values:
        coding = replace(coding, by_color={})  # a palette says how classes are drawn, not how they are stored
    splits = {split: listed.splits[split] for split in (*SPLITS, "all") if split in listed.splits}
    return MaskContents(
        str(path),
        list(coding.classes),
        splits,
        multi_label=True,
        issues=listed.issues,
        ignored=listed.ignored,
        notes=tuple(listed.notes),
        coding=coding,
    )


def require_there(source: str | Path) -> Path:
    """Return the path of data; raises `DataError` if it does not exist, or can hold no masks."""
    path = Path(os.path.abspath(path_of(source)))
    if not path.exists():
        raise DataError(f"no data at {str(source)!r}", where="--data", hint=HINT)
    if path.is_file() and path.suffix.lower() not in (".json", *NAMED_ENDINGS):
        raise DataError(f"{path.name} holds no masks", where="--data", hint=HINT)
    return path


def tells_masks(source: str | Path) -> bool:
    """Return True for a folder with images and masks, or a table that lists both."""
    path = path_of(source)
    if path.is_dir():
        parts = [part for pair in pairs_in(path) if pair.masks for part in pair.masks.relative_to(path).parts]
        return any(part.lower() in MASKS[:2] for part in parts)  # other names may be those of classes
    return path.is_file() and path.suffix.lower() in NAMED_ENDINGS and has_masks(path)


def _read(path: Path) -> tuple[list[Row], dict[str, Listed], list[Path]]:
    """Read data: the classes if it names them, what each of its splits lists, and the files that list it."""
    if path.is_file() and path.suffix.lower() != ".json":
        return [], {"": read_table(path)}, []
    if path.is_file():
        rows, listed = read_coco(path)
        return rows, {"": listed}, []
    if pairs := pairs_in(path):
        return [], {"": read_pairs(path, pairs)}, []
    tables = [file for file in files_of(path) if file.suffix.lower() in ENDINGS and file.name != CLASSES and has_masks(file)]
    if len(tables) == 1:
        return [], {"": read_table(tables[0])}, tables
    if not any(
        file.suffix.lower() == ".json" for place in (path, path / "annotations") if place.is_dir() for file in files_of(place)
    ):
        raise _no_masks(path, Listed())
    files = split_files(path, "instances", (".json",), hint=HINT)
    read = {split: read_coco(file) for split, file in files.items()}
    first, *others = (rows for rows, _ in read.values())
    if any(rows != first for rows in others):
        raise DataError("the splits have different categories", where=path, hint="give files with one list of categories")
    return first, {split: listed for split, (_, listed) in read.items()}, list(files.values())


def _joined(read: Mapping[str, Listed]) -> Listed:
    """Join what is listed for each split; the key "" leaves the splits as they are."""
    joined = Listed()
    for split, listed in read.items():
        for own, items in listed.splits.items():
            joined.splits.setdefault(split or own, []).extend(items)
        joined.ignored += listed.ignored
        joined.issues += listed.issues
        joined.notes += listed.notes
    joined.splits = named_apart(joined.splits, lambda item, name: replace(item, name=name))
    return joined


def _no_masks(path: Path, listed: Listed) -> DataError:
    notes = "".join(f"; {note}" for note in [*listed.notes, *(f"{one.path}: {one.what}" for one in listed.issues[:1])])
    looked = f"looked for {MASKS[0]}/ beside {IMAGES[0]}/ here, in train/ and val/, or with train/ and val/ inside of both"
    hint = f"{looked}; for a table with the columns image,mask; and for COCO's JSON. docs/segmentation.md shows them"
    return DataError(f"no masks found{notes}", where=path, hint=hint)
