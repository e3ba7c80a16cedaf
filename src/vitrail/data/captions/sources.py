"""Where captions come from: the ``--data`` argument of captioning to named splits."""

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from vitrail.data.captions.captions import CaptionContents, CaptionData, Captioned, tidy, with_splits
from vitrail.data.coco import folder_of, pictures_in, read_json, whole
from vitrail.data.items import Issue
from vitrail.data.rows import read_rows, row_of, split_in
from vitrail.data.split_files import split_files
from vitrail.data.splits import SHARES, Assignment
from vitrail.errors import DataError
from vitrail.files import path_of
from vitrail.settings import brief

SHAPE = "the columns are image and caption, perhaps split; an image has a line for each of its captions"
HINT = f"give captions.csv ({SHAPE}), or captions.json in COCO's format, or a folder with such a file for each split"
ENDINGS = (".csv", ".tsv", ".tab", ".json")
COLUMNS = {
    "image": ("image", "filename", "file_name", "file", "path", "image_name", "image_path"),
    "caption": ("caption", "sentence", "text", "description", "comment"),
}
"""What columns may be called; the first that is there counts."""
NO_CAPTION = "images without a caption"

Line = tuple[str, str, str, str]
"""Where a caption stands, the name of its image, its split and the caption."""


def open_captions(
    source: str | Path,
    *,
    split_seed: int = 0,
    shares: Mapping[str, float] = SHARES,
    assignment: Assignment | None = None,
) -> CaptionData:
    """Open images with captions, with their splits.

    Args:
        source: a table ``captions.csv`` with the columns ``image,caption`` and perhaps ``split``; ``captions.json`` in COCO's
            format; or a folder with such a file, or with one for each split, see `split_files`.
            Images lie beside it, or in a folder ``images``.
        split_seed: data without splits is split by it, image by image.
        shares: of test and validation in such data, {"test": 0.2, "val": 0.1} where they are not given.
        assignment: repeats an earlier split.

    Raises:
        DataError: nothing there, something is wrong with it, or an image is in several splits.
    """
    contents = read_captions(source)
    if contents.issues:
        first, *others = contents.issues
        what = f"{first.what} (and {len(others):,} more)" if others else first.what
        raise DataError(what, where=first.path, hint="correct it; vitrail data check --task caption lists all there is")
    return with_splits(contents, split_seed, assignment, shares)


def read_captions(source: str | Path) -> CaptionContents:
    """What a data set of captions holds, with everything that is wrong with it; see `open_captions`."""
    path = require_there(source)
    files = _files(path) if path.is_dir() else {"all": path}
    splits: dict[str, list[Captioned]] = {}
    issues: list[Issue] = []
    empty = 0
    for split, file in files.items():
        read = _read_coco if file.suffix.lower() == ".json" else _read_table
        folder, lines, without = read(file, issues)
        empty += without
        for own, items in _by_split(lines, folder, issues).items():
            splits.setdefault(own if own != "all" else split, []).extend(items)
    if not any(splits.values()) and not issues:
        raise DataError("no captions found", where=path, hint=HINT)
    return CaptionContents(str(path), splits, issues, {NO_CAPTION: empty})


def require_there(source: str | Path) -> Path:
    """The path of data that is there; raises `DataError`."""
    path = Path(os.path.abspath(path_of(source)))
    if not os.path.exists(path):
        raise DataError(f"no data at {str(source)!r}", where="--data", hint=HINT)
    if path.is_dir():
        _files(path)
    elif path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path.name} holds no captions", where="--data", hint=HINT)
    return path


def tells_captions(source: str | Path) -> bool:
    """Whether a file can only hold captions: it is named so."""
    path = path_of(source)
    return os.path.isfile(path) and path.suffix.lower() in ENDINGS and "caption" in path.stem.lower()


def _files(folder: Path) -> dict[str, Path]:
    return split_files(folder, "caption", ENDINGS, hint=HINT)


def _read_table(file: Path, issues: list[Issue]) -> tuple[Path, list[Line], int]:
    """The folder that images lie in, a line for each caption, and how many images have none."""
    columns, rows = read_rows(file, SHAPE, partial(_called, file))
    called = _called(file, columns)
    lines: list[Line] = []
    for number, cells in rows:
        try:
            row = row_of(columns, cells)
            lines.append((f"{file}:{number}", row[called["image"]], split_in(row), row[called["caption"]]))
        except ValueError as error:
            issues.append(Issue("bad-row", f"{file}:{number}", str(error)))
    return folder_of(file, list(dict.fromkeys(name for _, name, *_ in lines))), lines, 0


def _called(file: Path, columns: list[str]) -> dict[str, str]:
    """What the columns of images and captions are called; raises `DataError` where one is lacking."""
    own = {column.lower(): column for column in reversed(columns)}
    called = {name: next((own[word] for word in words if word in own), "") for name, words in COLUMNS.items()}
    if lacking := next((name for name, column in called.items() if not column), None):
        what = f"{file.name} has no column {lacking}; there are {', '.join(map(brief, columns)) or 'none'}"
        raise DataError(what, where=file, hint=SHAPE)
    return called


def _read_coco(file: Path, issues: list[Issue]) -> tuple[Path, list[Line], int]:
    """As `_read_table` of a file of COCO's."""
    values = read_json(file)
    if not isinstance(values, dict) or not all(isinstance(values.get(name), list) for name in ("images", "annotations")):
        hint = "see https://cocodataset.org/#format-data, image captioning"
        raise DataError(f"{file.name} has no images and annotations", where=file, hint=hint)
    pictures = pictures_in(values["images"], issues, file)
    lines: list[Line] = []
    seen = set()
    for place, annotation in enumerate(values["annotations"]):
        told = annotation if isinstance(annotation, dict) else {}
        number, caption = whole(told.get("image_id")), told.get("caption")
        if number is None or number not in pictures or not isinstance(caption, str):
            wrong = "it has no caption" if number in pictures else f"there is no image {brief(told.get('image_id'))}"
            issues.append(Issue("bad-annotation", str(file), f"annotation {place + 1} in the list: {wrong}"))
            continue
        seen.add(number)
        lines.append((f"{file}, annotation {brief(told.get('id', place + 1))}", pictures[number]["file_name"], "all", caption))
    return folder_of(file, [picture["file_name"] for picture in pictures.values()]), lines, len(pictures.keys() - seen)


def _by_split(lines: Iterable[Line], folder: Path, issues: list[Issue]) -> dict[str, list[Captioned]]:
    """The images of each split with all of their captions, in the order in which they come."""
    captions: dict[str, dict[str, list[str]]] = {}
    split_of: dict[str, str] = {}
    for where, name, split, text in lines:
        caption = tidy(text)
        if not name or not caption:
            issues.append(
                Issue("no-caption" if name else "missing-file", where, "the caption is empty" if name else "no image is named")
            )
        elif split_of.setdefault(name, split) != split:
            issues.append(Issue("leak", where, f"the image {name} is in the splits {split_of[name]} and {split}"))
        else:
            captions.setdefault(split, {}).setdefault(name, []).append(caption)
    missing = [name for name in split_of if not os.path.isfile(folder / name)]
    issues += [Issue("missing-file", str(folder / name), "there is no such image") for name in missing]
    gone = set(missing)
    return {
        split: [Captioned(name, folder / name, tuple(own)) for name, own in images.items() if name not in gone]
        for split, images in captions.items()
    }
