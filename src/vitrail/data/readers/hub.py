"""Data sets of Hugging Face's ``datasets`` library, from its hub or from a local path: the extra ``hf``."""

import os
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from vitrail.data.items import SPLITS, Contents, Issue, Named, pooled_notes, splits_by_name, with_indices
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of
from vitrail.plain_text import clean

LABEL_COLUMNS = ("label", "labels", "fine_label")
"""Columns of labels, where there are several of class labels, or none but of numbers or words."""
PLAIN = ("int", "uint", "string", "large_string")
"""Beginnings of the kinds of numbers and words."""


@dataclass(frozen=True)
class Row:
    """The image of one row, read when it is opened."""

    name: str
    images: Any
    """Table of images as files."""
    column: str
    number: int

    def open(self) -> IO[bytes]:
        image = self.images[self.number][self.column]
        if image is None:
            raise DataError("the row has no image", hint="take the row out")
        return BytesIO(image["bytes"]) if image["bytes"] is not None else open(image["path"], "rb")


def read_hub(name: str) -> Contents:
    """Read ``NAME`` or ``NAME@REVISION`` of the hub, or a local path: what ``save_to_disk`` wrote, or a folder of files.

    Only what is no local path is downloaded. Splits called train, validation or val, and test are taken, and
    data with none of these has no splits; a split without images or without labels is left out. Images come from the column
    of images; labels from the column of class labels (one for an image, or a list of them), or else from numbers or words
    in a column called label, labels or fine_label.

    Raises:
        ConfigError: the library is not installed.
        DataError: no such data set, no images or no labels in it, splits with different classes. What is wrong with a row
            is an issue of the contents.
    """
    local = path_of(name)
    source = f"hf:{os.path.abspath(local) if local.exists() else name}"
    tables = _tables(local, name, source)
    splits = splits_by_name(tables)
    own = {key: tables[key] for split in SPLITS for key in tables if splits.get(key) == split} or tables
    features = next(iter(own.values())).features  # of the training split, if there is one
    image, label = _image_column(features, source), _label_column(features, source)
    kind = classes, multi_label = _kind(features[label])
    issues: list[Issue] = []
    found: list[Named] = []
    for split, table in own.items():
        if not {image, label} <= table.features.keys():
            continue
        if _kind(table.features[label]) != kind:
            what = f"the classes of the split {split!r} differ from the classes of {next(iter(own))!r}"
            raise DataError(what, where=source, hint="give all splits the same classes in the same order")
        labels = [_labels(value, classes) for value in table[label][:]]
        if not any(labels):
            continue  # benchmarks keep the labels of their test images to themselves
        images = table.select_columns([image]).cast_column(image, type(features[image])(decode=False))
        for number, of_image in enumerate(labels):
            row = f"{split}/{number:05d}"
            stored = Row(f"{source}/{row}", images, image, number)
            if of_image is None:
                issues.append(Issue("no-label", stored.name, "the row has no label, or one that is no class"))
            else:
                found.append(Named(splits.get(split, "all"), row, stored, of_image))
    if not found:
        raise DataError("no images with labels found", where=source, hint="take a data set that has both")
    notes = tuple(pooled_notes((splits[key], key) for key in own if key in splits))
    return with_indices(source, found, classes=classes, multi_label=multi_label, issues=issues, notes=notes)


def _tables(local: Path, name: str, source: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise ConfigError("data of the hub needs an extra", where="--data", hint="pip install 'vitrail[hf]'") from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        if local.exists():
            saved = any((local / file).is_file() for file in ("dataset_dict.json", "state.json"))
            found = (datasets.load_from_disk if saved else datasets.load_dataset)(os.path.abspath(local))
        else:
            repository, _, revision = name.partition("@")
            found = datasets.load_dataset(repository, revision=revision or None)
    except Exception as error:  # the library raises many kinds, for the network, the files and their form
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = "check its name, the network, and the access to it"
        raise DataError(f"cannot open the data set: {reason}", where=source, hint=hint) from error
    return found if isinstance(found, dict) else {"all": found}


def _image_column(features: dict[str, Any], source: str) -> str:
    images = [column for column, feature in features.items() if type(feature).__name__ == "Image"]
    if len(images) != 1 and "image" not in images:
        what = f"{len(images) or 'no'} columns of images among {', '.join(map(repr, features))}"
        raise DataError(what, where=source, hint="take a data set with one column of images, or call one of them image")
    return images[0] if len(images) == 1 else "image"


def _label_column(features: dict[str, Any], source: str) -> str:
    classes = [column for column, feature in features.items() if type(_single(feature)).__name__ == "ClassLabel"]
    plain = [c for c in LABEL_COLUMNS if str(getattr(features.get(c), "dtype", "")).startswith(PLAIN)]
    choices = classes if len(classes) == 1 else [column for column in LABEL_COLUMNS if column in (classes or plain)]
    if not choices:
        what = f"no column of labels, or several, among {', '.join(map(repr, features))}"
        hint = f"take a data set with one column of class labels, or call it one of {', '.join(LABEL_COLUMNS)}"
        raise DataError(what, where=source, hint=hint)
    return choices[0]


def _kind(feature: Any) -> tuple[list[str] | None, bool]:
    """Return the classes of a column of labels, None where it lists none, and True if an image has several."""
    return getattr(_single(feature), "names", None), _single(feature) is not feature


def _single(feature: Any) -> Any:
    """Return the kind of a column, or of the members of a column of lists."""
    return getattr(feature, "feature", feature)


def _labels(value: Any, classes: list[str] | None) -> tuple[str, ...] | None:
    """Return the classes of a row; None without a label, which the hub also writes as -1."""
    labels = value if isinstance(value, list) else [value]
    if any(label is None or (isinstance(label, int) and label < 0) or not clean(str(label)) for label in labels):
        return None
    if classes is None:
        return tuple(clean(str(label)) for label in labels)
    return tuple(dict.fromkeys(classes[label] for label in labels)) if max(labels, default=0) < len(classes) else None
