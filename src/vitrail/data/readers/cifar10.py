"""CIFAR-10 (Krizhevsky 2009) as published, in the binary and the Python version."""

import gzip
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from vitrail.data.items import Contents, Item
from vitrail.data.readers.archives import entries, explained
from vitrail.data.readers.safe_unpickle import ANEW, read_pickle
from vitrail.errors import DataError
from vitrail.files import regular_file

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
META = "batches.meta"
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
SIDE = 32
PIXELS = 3 * SIDE * SIDE
MAX_BYTES = 64 * 2**20
"""Size limit of a batch in bytes; the original batches have 30 MB."""
MAX_ARCHIVE, MAX_HEADERS = 16 * MAX_BYTES, 2**20
"""Size limits of an unpacked archive and of its headers in bytes; the original archives have eight files and 180 MB."""


def read_cifar10(path: Path) -> Contents:
    """Read CIFAR-10 from the downloaded archive, from its unpacked folder, or from that folder's parent.

    The five training batches, in order, are the training split, and the test batch is the test split. Images are 32×32 RGB
    pixels, all views of one array. Archives are read in memory, and no code in a pickle is run.

    Raises:
        DataError: the path has no data, a batch is missing or damaged, or a label is not among the classes.
    """
    files = _unpacked(path) if path.is_dir() else _archived(path)
    suffix = ".bin" if any(f"{batch}.bin" in files for batch in BATCHES) else ""
    missing = [f"{batch}{suffix}" for batch in BATCHES if f"{batch}{suffix}" not in files]
    if missing:
        hint = "give the path of cifar-10-binary.tar.gz or cifar-10-python.tar.gz"
        raise DataError(f"{', '.join(missing)} not found", where=path, hint=hint)
    read = _read_binary if suffix else _read_pickled
    batches = [read(files[f"{batch}{suffix}"], f"{batch}{suffix} in {path}") for batch in BATCHES]
    classes = _classes(files, path)
    splits: dict[str, list[Item]] = {"train": [], "test": []}
    images = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    rest = iter(np.ascontiguousarray(images))
    for batch, (_, labels) in zip(BATCHES, batches, strict=True):
        if wrong := [i for i, label in enumerate(labels) if label not in range(len(classes))]:
            raise DataError(f"the label of image {wrong[0]} in {batch} is none of {len(classes)} classes", where=path, hint=ANEW)
        items = [Item(f"{batch}/{i:05d}", next(rest), label) for i, label in enumerate(labels)]
        splits["test" if batch == "test_batch" else "train"] += items
    return Contents(f"cifar10:{path}", classes, splits)


def _unpacked(folder: Path) -> dict[str, bytes]:
    folder = next((folder / name for name in FOLDERS if (folder / name).is_dir()), folder)
    files = [file for file in folder.iterdir() if _wanted(file.name) and file.is_file()]
    for file in files:
        _check_size(file.name, file.stat().st_size, MAX_BYTES, folder)
    return {file.name: file.read_bytes() for file in files}


def _archived(archive: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with explained(archive, hint=ANEW), _unzipped(archive) as stream:
        for entry in entries(stream, most=MAX_HEADERS):
            name = Path(entry.name).name
            _check_size("the archive", entry.offset_data + entry.size, MAX_ARCHIVE, archive)
            if entry.isreg() and not entry.issparse() and _wanted(name):
                _check_size(name, entry.size, MAX_BYTES, archive)
                stream.seek(entry.offset_data)
                files[name] = stream.read(entry.size)
    return files


def _unzipped(archive: Path) -> BufferedIOBase:
    with regular_file(archive) as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(archive) if zipped else archive.open("rb")


def _wanted(name: str) -> bool:
    return name.removesuffix(".bin") in BATCHES or name.removesuffix(".txt") == META


def _check_size(what: str, size: int, limit: int, where: Path) -> None:
    if size > limit:
        raise DataError(f"{what} has {size:,} bytes, more than the {limit:,} of any CIFAR-10", where=where, hint=ANEW)


def _read_binary(content: bytes, where: str) -> tuple[np.ndarray, list[int]]:
    """Read records of a label and 3,072 pixel values (red, green, blue); return pixels uint8 (N, 3072) and labels."""
    if not content or len(content) % (1 + PIXELS):
        raise DataError(f"{len(content):,} bytes are no whole number of {1 + PIXELS}-byte records", where=where, hint=ANEW)
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 1:], records[:, 0].tolist()


def _read_pickled(content: bytes, where: str) -> tuple[np.ndarray, list[int]]:
    batch = _by_name(read_pickle(content, where=where), where)
    pixels, labels = batch.get("data"), batch.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS or not len(pixels):
        raise DataError(f"the batch holds no array of {PIXELS} values per image called 'data'", where=where, hint=ANEW)
    if not isinstance(labels, list) or len(labels) != len(pixels) or any(type(label) is not int for label in labels):
        raise DataError(f"the batch holds no list of {len(pixels)} whole numbers called 'labels'", where=where, hint=ANEW)
    return pixels, labels


def _classes(files: Mapping[str, bytes], where: Path) -> list[str]:
    names: object = CLASSES
    if text := files.get(f"{META}.txt"):
        names = text.split(b"\n")
    elif content := files.get(META):
        names = _by_name(read_pickle(content, where=f"{META} in {where}"), f"{META} in {where}").get("label_names")
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise DataError(f"{META} holds no list of class names", where=where, hint=ANEW)
    return [name for name in (_text(name).strip() for name in names) if name]


def _by_name(value: object, where: str) -> dict[str, object]:
    """Return a mapping with its keys as text; a pickle of Python 2 has bytes."""
    if not isinstance(value, dict):
        raise DataError(f"the pickle holds a {type(value).__name__}, not a mapping", where=where, hint=ANEW)
    return {_text(key): inner for key, inner in value.items() if isinstance(key, bytes | str)}


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
