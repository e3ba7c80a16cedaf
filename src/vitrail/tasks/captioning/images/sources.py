"""Sources of captions: from the ``--data`` argument of captioning to named splits."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vitrail.data.groups import GROUP
from vitrail.data.items import Issue, left_out_notes, split_of
from vitrail.data.readers.image_names import MissingImages, find_image, folder_of
from vitrail.data.readers.split_files import split_files
from vitrail.data.readers.table import has_labels
from vitrail.data.readers.tree import unlisted_in
from vitrail.data.splits import SHARES, Assignment
from vitrail.data.tables.coco import pictures_in, read_json, whole
from vitrail.data.tables.csv_rows import IMAGE, NAMED_ENDINGS, SPLIT, Columns, Table, column_of, listed, split_in, text_lines
from vitrail.data.tables.json_rows import JsonTable, open_table
from vitrail.errors import DataError
from vitrail.files import path_of
from vitrail.plain_text import is_odd
from vitrail.settings import brief
from vitrail.tasks.captioning.images.captioned_images import CaptionContents, CaptionData, Captioned, tidy, with_splits

SHAPE = "the columns are image, caption and optionally split; an image has a line for each of its captions"
HINT = f"give captions.csv ({SHAPE}), or captions.json in COCO's format, or a folder with such a file for each split"
ENDINGS = (*NAMED_ENDINGS, ".json", ".token")
CLEAR, VAGUE = ("captions", "sentence"), ("text", "description", "comment")
"""Other names of the column ``caption``, in the order of search; `VAGUE` ones occur in tables without captions, too."""
NUMBER = re.compile(r"(.*[ _])?(number|id|index)", re.IGNORECASE)
"""Names of columns of numbers, which a table with a `VAGUE` column may have and still count as captions."""
OF_FLICKR = re.compile(r"([^\t]+)#\d+\t(.*)")
"""A line of Flickr8k.token.txt, which has no header: the image, the caption's number, the caption."""
NO_CAPTION = "images without a caption"

Line = tuple[str, str, str, str]
"""Location of a caption (file and line), name of its image, split, and the caption."""


def open_captions(
    source: str | Path,
    *,
    split_seed: int = 0,
    shares: Mapping[str, float] = SHARES,
    assignment: Assignment | None = None,
    group: str | None = None,
) -> CaptionData:
    """Open images with captions, with their splits.

    Args:
        source: a table ``captions.csv`` with the columns ``image,caption`` and optionally ``split``; ``captions.json`` in
            COCO's format, Karpathy's, or as a list; JSON lines; or a folder with such a file, or with one for each split, see
            `split_files`. Images are in the folder of the file, or in a folder ``images`` there.
        split_seed: seed that splits data without splits, image by image.
        shares: fractions of test and validation in such data, {"test": 0.2, "val": 0.1} by default.
        assignment: an earlier split to repeat.
        group: the column with the group of each image, ``group`` by default; a group is always in one split.

    Raises:
        DataError: there is no data, it has faults, or an image is in several splits.
    """
    contents = read_captions(source, group)
    if contents.issues:
        first, *others = contents.issues
        what = f"{first.what} (and {len(others):,} more)" if others else first.what
        raise DataError(what, where=first.path, hint="correct it; vitrail data check --task caption lists all faults")
    return with_splits(contents, split_seed, assignment, shares)


def read_captions(source: str | Path, group: str | None = None) -> CaptionContents:
    """Read a data set of captions, and collect all its faults instead of raising an error; see `open_captions`."""
    path = require_there(source)
    files = _files(path) if path.is_dir() else {"all": path}
    contents, groups = CaptionContents(str(path), {}), dict[str, str]()
    for split, file in files.items():
        read = _read_json if file.suffix.lower() == ".json" else _read_table
        folder, lines = read(file, contents, group)
        if odd := sum(is_odd(caption) for *_, caption in lines):
            contents.notes.append(f"{file.name}: captions cleaned of invisible characters or odd blanks: {odd:,}")
        for own, items in _by_split(lines, folder, contents.issues).items():
            contents.splits.setdefault(own if own != "all" else split, []).extend(items)
            groups |= {str(item.image): contents.groups[item.name] for item in items if item.name in contents.groups}
        contents.groups.clear()  # names are unique in one file only, paths in all
    contents.groups.update(groups)
    if group and not groups and not contents.issues:
        raise DataError(f"the data has no column {group!r} of groups", where=path, hint="leave out --data.group")
    if path.is_dir():
        images = [item.image for items in contents.splits.values() for item in items if isinstance(item.image, Path)]
        bare = unlisted_in(path, {os.path.abspath(file) for file in (*files.values(), *images)})
        counted = any(contents.left_out.values())  # COCO's images without a caption have a line of their own
        contents.notes.extend(left_out_notes(issue for issue in bare if not (counted and issue.kind == "unlisted")))
    if not any(contents.splits.values()) and not contents.issues:
        raise DataError("no captions found", where=path, hint=HINT)
    return contents


def require_there(source: str | Path) -> Path:
    """Return the path of the data; raises `DataError` if there is no file or folder with captions."""
    path = Path(os.path.abspath(path_of(source)))
    if not os.path.exists(path):
        raise DataError(f"no data at {str(source)!r}", where="--data", hint=HINT)
    if path.is_dir():
        _files(path)
    elif path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path.name} holds no captions", where="--data", hint=HINT)
    return path


def tells_captions(source: str | Path) -> bool:
    """Return whether a file certainly holds captions, by the columns of a table or by the name of a JSON file."""
    path = path_of(source)
    if not os.path.isfile(path) or path.suffix.lower() not in ENDINGS:
        return False
    if path.suffix.lower() == ".json":
        return "caption" in path.stem.lower()
    if _is_flickrs(path):
        return True
    try:
        table = open_table(path, columns_of)
    except DataError:
        return False
    if column_of(table.names, "caption", ()) is not None:
        return column_of(table.names, "label", ()) is None  # with a label, the table may be for classification
    others = [name for name in table.names if name and name not in table.columns.values() and not NUMBER.fullmatch(name)]
    clear = column_of(table.names, "caption", CLEAR, first=True) is not None or not others
    return clear and not has_labels(table.names)


def _files(folder: Path) -> dict[str, Path]:
    return split_files(folder, "caption", ENDINGS, hint=HINT)


def columns_of(names: Sequence[str], group: str | None = None) -> Columns:
    """Return the columns of images, captions, splits and groups; raises `DataError` if images or captions have none."""
    columns = {
        "image": column_of(names, "image", IMAGE, first=True),
        "caption": column_of(names, "caption", (*CLEAR, *VAGUE), first=True),
        "split": column_of(names, "split", SPLIT),
        GROUP: column_of(names, group or GROUP),
    }
    if group and columns[GROUP] is None:
        raise DataError(f"no column is called {group!r}; there are {listed(names)}", hint="give a column with --data.group")
    if lacking := next((word for word in ("image", "caption") if columns[word] is None), None):
        raise DataError(f"no column is called {lacking!r}; there are {listed(names)}", hint=SHAPE)
    return {word: name for word, name in columns.items() if name is not None}


def _read_table(file: Path, contents: CaptionContents, group: str | None) -> tuple[Path, list[Line]]:
    """Return the folder of the images, and a line for each caption."""
    lines: list[Line] = []
    if _is_flickrs(file):
        lines = [(f"{file}:{number}", name, "all", caption) for number, name, caption in _of_flickr(file, contents.issues)]
    else:
        lines = _rows_of(open_table(file, partial(columns_of, group=group)), contents)
    return folder_of(file, list(dict.fromkeys(name for _, name, *_ in lines))), lines


def _rows_of(table: Table, contents: CaptionContents) -> list[Line]:
    lines: list[Line] = []
    for number, cells, problem in table.rows():
        where = f"{table.file}:{number}"
        try:
            if problem:
                raise ValueError(problem)
            lines.append((where, cells["image"], split_in(cells), cells["caption"]))
            if cells.get(GROUP):
                contents.groups[cells["image"]] = cells[GROUP]
        except ValueError as error:
            contents.issues.append(Issue("bad-row", where, str(error)))
    contents.notes.extend(table.notes())
    return lines


def _is_flickrs(file: Path) -> bool:
    """Return whether a file is a list of captions in the format of Flickr8k and Flickr30k."""
    with text_lines(file) as lines:
        return bool(OF_FLICKR.fullmatch(next(lines, "").strip("\ufeff\r\n")))


def _of_flickr(file: Path, issues: list[Issue]) -> Iterator[tuple[int, str, str]]:
    with text_lines(file) as lines:
        for number, line in enumerate(lines, 1):
            if match := OF_FLICKR.fullmatch(line.rstrip("\r\n")):
                yield number, match[1], match[2]
            elif line.strip():
                issues.append(Issue("bad-row", f"{file}:{number}", "the line is not IMAGE#NUMBER, a tab and a caption"))


def _read_json(file: Path, contents: CaptionContents, group: str | None) -> tuple[Path, list[Line]]:
    """Read a JSON file (COCO's, Karpathy's, or a list of images with captions); return the same as `_read_table`."""
    values = read_json(file)
    if isinstance(values, list):
        lines = _rows_of(JsonTable(file, partial(columns_of, group=group), values), contents)
        return folder_of(file, list(dict.fromkeys(name for _, name, *_ in lines))), lines
    images = values.get("images") if isinstance(values, dict) else None
    if isinstance(images, list) and any(isinstance(image, dict) and "sentences" in image for image in images):
        return _read_karpathy(file, images, contents.issues)
    return _read_coco(file, values, contents)


def _read_karpathy(file: Path, images: list[Any], issues: list[Issue]) -> tuple[Path, list[Line]]:
    """Read Karpathy's files, whose images have a split each; ``restval`` is for training."""
    lines: list[Line] = []
    for place, image in enumerate(images, 1):
        where, own = f"{file}, image {place}", image if isinstance(image, dict) else {}
        name, split, sentences = own.get("filename"), split_of(str(own.get("split", ""))), own.get("sentences")
        raw = [one.get("raw") for one in sentences if isinstance(one, dict)] if isinstance(sentences, list) else []
        texts = [text for text in raw if isinstance(text, str)]
        if not isinstance(name, str) or not split or not texts or len(texts) < len(raw):
            issues.append(Issue("bad-image", where, "it needs filename, split and sentences, each with raw"))
            continue
        below = own.get("filepath")
        path = f"{below}/{name}" if isinstance(below, str) and below else name
        lines += [(where, path, split, text) for text in texts]
    names = list(dict.fromkeys(name for _, name, *_ in lines))
    folder, bare = folder_of(file, names), [os.path.basename(name) for name in names]
    if names and find_image(folder, names[0]) is None and find_image(flat := folder_of(file, bare), bare[0]) is not None:
        return flat, [(where, os.path.basename(name), split, text) for where, name, split, text in lines]
    return folder, lines


def _read_coco(file: Path, values: Any, contents: CaptionContents) -> tuple[Path, list[Line]]:
    """Read a file of COCO's."""
    issues = contents.issues
    if not isinstance(values, dict) or not all(isinstance(values.get(name), list) for name in ("images", "annotations")):
        hint = "give COCO's captions, Karpathy's images with sentences, or a list of objects with image and caption"
        raise DataError(f"{file.name} has no images and annotations", where=file, hint=hint)
    pictures = pictures_in(values["images"], issues, file)
    lines: list[Line] = []
    seen = set()
    for place, annotation in enumerate(values["annotations"]):
        fields = annotation if isinstance(annotation, dict) else {}
        number, caption = whole(fields.get("image_id")), fields.get("caption")
        if number is None or number not in pictures or not isinstance(caption, str):
            wrong = "it has no caption" if number in pictures else f"there is no image {brief(fields.get('image_id'))}"
            issues.append(Issue("bad-annotation", str(file), f"annotation {place + 1} in the list: {wrong}"))
            continue
        seen.add(number)
        lines.append((f"{file}, annotation {brief(fields.get('id', place + 1))}", pictures[number]["file_name"], "all", caption))
    contents.left_out[NO_CAPTION] = contents.left_out.get(NO_CAPTION, 0) + len(pictures.keys() - seen)
    return folder_of(file, [picture["file_name"] for picture in pictures.values()]), lines


def _by_split(lines: Iterable[Line], folder: Path, issues: list[Issue]) -> dict[str, list[Captioned]]:
    """Return the images of each split with all their captions, in the order of the lines."""
    captions: dict[str, dict[str, list[str]]] = {}
    split_by_name: dict[str, str] = {}
    for where, name, split, text in lines:
        caption = tidy(text)
        if not name or not caption:
            kind, what = ("no-caption", "the caption is empty") if name else ("missing-file", "no image is named")
            issues.append(Issue(kind, where, what))
        elif split_by_name.setdefault(name, split) != split:
            issues.append(Issue("leak", where, f"the image {name} is in the splits {split_by_name[name]} and {split}"))
        else:
            captions.setdefault(split, {}).setdefault(name, []).append(caption)
    files = {name: find_image(folder, name) for name in split_by_name}
    gone, missing = [name for name, file in files.items() if file is None], MissingImages(folder)
    if len(gone) == len(files) and (prefix := missing.prefix(gone)):
        issues.append(Issue("missing-file", str(folder), prefix))
    else:
        issues += [Issue("missing-file", str(folder / name), f"there is no such image{missing.near(name)}") for name in gone]
    return {
        split: [Captioned(name, file, tuple(own)) for name, own in images.items() if (file := files[name])]
        for split, images in captions.items()
    }
