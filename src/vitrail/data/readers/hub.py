"""Data sets of Hugging Face's library ``datasets``, from the hub or a local path. It needs the extra ``hf``."""

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
"""Names of the label column, used if there are several columns of class labels, or only columns of numbers or strings."""
PLAIN = ("int", "uint", "string", "large_string")
"""Prefixes of the dtypes of integers and strings."""


@dataclass(frozen=True)
class Row:
    """The image of one row; it is read when it is opened."""

    name: str
    images: Any
    """Table with a column of encoded images."""
    column: str
    number: int

    def open(self) -> IO[bytes]:
        image = self.images[self.number][self.column]
        if image is None:
            raise DataError("the row has no image", hint="remove the row from the data set")
        return BytesIO(image["bytes"]) if image["bytes"] is not None else open(image["path"], "rb")


def read_hub(name: str) -> Contents:
    """Read a data set from a local path if it exists, else ``NAME`` or ``NAME@REVISION`` from the hub.

    A local path is a folder that ``save_to_disk`` wrote, or a folder of data files. The splits train, validation (or val) and
    test are read; if there are none of these names, the data has no splits. A split without images or labels is left out.
    Images are read from the image column; labels from the column of class labels (one label for an image, or a list), else
    from integers or strings in a column named label, labels or fine_label.

    Raises:
        ConfigError: the library is not installed.
        DataError: the data set does not exist, has no images or no labels, or its splits have different classes. Faults of
            single rows are reported as issues of the contents.
    """
    local = path_of(name)
    source = f"hf:{os.path.abspath(local) if local.exists() else name}"
    tables = _tables(local, name, source)
    splits = splits_by_name(tables)
    own = {key: tables[key] for split in SPLITS for key in tables if splits.get(key) == split} or tables
    features = next(iter(own.values())).features  # the training split's, if there is one
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
            continue  # benchmarks often publish test images without labels
        images = table.select_columns([image]).cast_column(image, type(features[image])(decode=False))
        for number, of_image in enumerate(labels):
            row = f"{split}/{number:05d}"
            stored = Row(f"{source}/{row}", images, image, number)
            if of_image is None:
                issues.append(Issue("no-label", stored.name, "the row has no label, or its label is not a class"))
            else:
                found.append(Named(splits.get(split, "all"), row, stored, of_image))
    if not found:
        raise DataError("no images with labels found", where=source, hint="choose a data set with images and labels")
    notes = tuple(pooled_notes((splits[key], key) for key in own if key in splits))
    return with_indices(source, found, classes=classes, multi_label=multi_label, issues=issues, notes=notes)


def _tables(local: Path, name: str, source: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise ConfigError("the library datasets is not installed", where="--data", hint="pip install 'vitrail[hf]'") from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        if local.exists():
            saved = any((local / file).is_file() for file in ("dataset_dict.json", "state.json"))
            found = (datasets.load_from_disk if saved else datasets.load_dataset)(os.path.abspath(local))
        else:
            repository, _, revision = name.partition("@")
            found = datasets.load_dataset(repository, revision=revision or None)
    except Exception as error:  # the library raises many types: for the network, the files and their format
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = "check the name, the network, and your access to the data set"
        raise DataError(f"cannot open the data set: {reason}", where=source, hint=hint) from error
    return found if isinstance(found, dict) else {"all": found}


def _image_column(features: dict[str, Any], source: str) -> str:
    images = [column for column, feature in features.items() if type(feature).__name__ == "Image"]
    if len(images) != 1 and "image" not in images:
        what = f"found {len(images) or 'no'} image columns among {', '.join(map(repr, features))}, expected one"
        raise DataError(what, where=source, hint="choose a data set with one image column, or rename one to image")
    return images[0] if len(images) == 1 else "image"


def _label_column(features: dict[str, Any], source: str) -> str:
    classes = [column for column, feature in features.items() if type(_single(feature)).__name__ == "ClassLabel"]
    plain = [c for c in LABEL_COLUMNS if str(getattr(features.get(c), "dtype", "")).startswith(PLAIN)]
    choices = classes if len(classes) == 1 else [column for column in LABEL_COLUMNS if column in (classes or plain)]
    if not choices:
        what = f"no label column, or several, among {', '.join(map(repr, features))}"
        hint = f"choose a data set with one column of class labels, or rename one to {' or '.join(LABEL_COLUMNS)}"
        raise DataError(what, where=source, hint=hint)
    return choices[0]


def _kind(feature: Any) -> tuple[list[str] | None, bool]:
    """Return the class names of a label column (None if it has none), and True if each row has a list of labels."""
    return getattr(_single(feature), "names", None), _single(feature) is not feature


def _single(feature: Any) -> Any:
    """Return the type of a column; of a column of lists, the type of an element."""
    return getattr(feature, "feature", feature)


def _labels(value: Any, classes: list[str] | None) -> tuple[str, ...] | None:
    """Return the class names of a row; None without a label, which the hub may write as -1."""
    labels = value if isinstance(value, list) else [value]
    if any(label is None or (isinstance(label, int) and label < 0) or not clean(str(label)) for label in labels):
        return None
    if classes is None:
        return tuple(clean(str(label)) for label in labels)
    return tuple(dict.fromkeys(classes[label] for label in labels)) if max(labels, default=0) < len(classes) else None
