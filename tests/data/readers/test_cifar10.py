"""CIFAR-10 is read from its binary and its Python version, as downloaded or unpacked, and never trusted."""

import gzip
import io
import os
import pickle
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from vitrail.data.images.decode import decode
from vitrail.data.readers.cifar10 import BATCHES, CLASSES, read_cifar10
from vitrail.errors import DataError

COUNT = 20
RANDOM = np.random.default_rng(0)
IMAGES = {batch: RANDOM.integers(0, 256, (COUNT, 3, 32, 32), dtype=np.uint8) for batch in BATCHES}
LABELS = {batch: RANDOM.permutation(np.arange(COUNT) % 10).tolist() for batch in BATCHES}

Files = dict[str, bytes]


def binary() -> Files:
    files = {
        f"{batch}.bin": b"".join(bytes([label]) + image.tobytes() for label, image in zip(LABELS[batch], images, strict=True))
        for batch, images in IMAGES.items()
    }
    return {**files, "batches.meta.txt": "\n".join(CLASSES).encode() + b"\n\n", "readme.html": b"<html>"}


def python(protocol: int = 2, text: type = bytes) -> Files:
    """As Python 3 pickles it with keys that are bytes, or text."""

    def key(name: str) -> bytes | str:
        return name.encode() if text is bytes else name

    files = {
        batch: pickle.dumps({key("data"): images.reshape(COUNT, -1), key("labels"): LABELS[batch]}, protocol)
        for batch, images in IMAGES.items()
    }
    return {**files, "batches.meta": pickle.dumps({key("label_names"): [key(name) for name in CLASSES]}, protocol)}


def packed(file: Path, files: Files, folder: str = "cifar-10-batches-any/", mode: str = "w:gz") -> Path:
    with tarfile.open(file, mode) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(folder + name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file


def unpacked(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def pixels(contents) -> dict[str, bytes]:
    return {item.name: item.image.tobytes() for items in contents.splits.values() for item in items}


@pytest.mark.parametrize("files", [binary(), python(0), python(2), python(5), python(2, str)], ids=["bin", "0", "2", "5", "str"])
def test_every_image_has_its_pixels_label_and_name(files, tmp_path):
    contents = read_cifar10(packed(tmp_path / "cifar.tar.gz", files))
    assert contents.classes == CLASSES and {s: len(i) for s, i in contents.splits.items()} == {"train": 100, "test": 20}
    for split, batches in (("train", BATCHES[:5]), ("test", BATCHES[5:])):
        for number, item in enumerate(contents.splits[split]):
            batch, index = batches[number // COUNT], number % COUNT
            assert item.name == f"{batch}/{index:05d}" and item.target == LABELS[batch][index]
            assert np.array_equal(item.image, IMAGES[batch][index].transpose(1, 2, 0))
            assert np.array_equal(decode(item.image), item.image)


@pytest.mark.parametrize("files", [binary(), python()], ids=["binary", "python"])
@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin", "cifar-10-batches-py"])
def test_a_folder_reads_as_the_archive_does(files, folder, tmp_path):
    unpacked(tmp_path / "data" / folder, files)
    archive = packed(tmp_path / "cifar.tar", files, mode="w")
    assert (
        pixels(read_cifar10(tmp_path / "data"))
        == pixels(read_cifar10(tmp_path / "data" / folder))
        == pixels(read_cifar10(archive))
    )


def test_names_of_classes_come_from_the_data_where_it_has_them(tmp_path):
    other = [f"class {i}" for i in range(10)]
    files = binary() | {"batches.meta.txt": "\r\n".join(other).encode()}
    assert read_cifar10(packed(tmp_path / "a.tar", files, mode="w")).classes == other
    files = python() | {"batches.meta": pickle.dumps({"label_names": other})}
    assert read_cifar10(packed(tmp_path / "b.tar", files, mode="w")).classes == other
    for files in (binary(), python()):
        named = {name: content for name, content in files.items() if "meta" not in name}
        assert read_cifar10(packed(tmp_path / "c.tar", named, mode="w")).classes == CLASSES


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("owned",)


def batch(**changes: object) -> bytes:
    return pickle.dumps({"data": IMAGES["test_batch"].reshape(COUNT, -1), "labels": LABELS["test_batch"]} | changes, 2)


DAMAGED = {
    "a batch missing": ({"data_batch_3.bin": None}, "data_batch_3.bin not found"),
    "half a record": ({"data_batch_3.bin": b"\0" * 3074}, "data_batch_3.bin"),
    "nothing in a batch": ({"test_batch.bin": b""}, "test_batch.bin"),
    "a label beyond the classes": ({"test_batch.bin": b"\x0a" + b"\0" * 3072}, "image 0 in test_batch is none of 10"),
    "fewer names than labels": ({"batches.meta.txt": b"cat\ndog\n"}, "is none of 2 classes"),
    "something to call": ({"test_batch": pickle.dumps({"data": Hostile()})}, "posix.mkdir"),
    "something to call in the names": ({"batches.meta": pickle.dumps(Hostile())}, "posix.mkdir"),
    "no pickle": ({"test_batch": b"text"}, "damaged"),
    "a pickle of a list": ({"test_batch": pickle.dumps([1])}, "not a mapping"),
    "no pixels": ({"test_batch": batch(data=None)}, "'data'"),
    "pixels of another size": ({"test_batch": batch(data=np.zeros((20, 3071), np.uint8))}, "'data'"),
    "one image alone": ({"test_batch": batch(data=np.zeros(3072, np.uint8))}, "'data'"),
    "numbers that are no pixels": ({"test_batch": batch(data=np.zeros((20, 3072)))}, "f8"),
    "too few labels": ({"test_batch": batch(labels=[1, 2])}, "'labels'"),
    "labels that are no numbers": ({"test_batch": batch(labels=["1"] * 20)}, "'labels'"),
    "a label beyond all numbers": ({"test_batch": batch(labels=[10**5000] * 20)}, "none of 10 classes"),
    "a label below the first": ({"test_batch": batch(labels=[-1] * 20)}, "image 0 in test_batch"),
    "names that are no names": ({"batches.meta": pickle.dumps({"label_names": [1, 2]})}, "batches.meta"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("form", ["archive", "folder"])
def test_damage_is_refused_and_named(name, form, tmp_path, monkeypatch):
    changes, words = DAMAGED[name]
    whole = binary() if any(".bin" in file or ".txt" in file for file in changes) else python()
    files = {file: content for file, content in {**whole, **changes}.items() if content is not None}
    path = packed(tmp_path / "cifar.tar", files, mode="w") if form == "archive" else unpacked(tmp_path / "data", files)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        read_cifar10(path)
    assert words in str(error.value) and str(path) in str(error.value) and error.value.hint
    assert not (tmp_path / "owned").exists()


@pytest.mark.soak
def test_an_archive_with_a_flipped_bit_is_refused_or_read_as_it_was(tmp_path):
    whole, random = packed(tmp_path / "cifar.tar.gz", binary()), np.random.default_rng(0)
    right, content, refused = pixels(read_cifar10(whole)), whole.read_bytes(), 0
    for place in [*range(12), *random.integers(0, len(content), 40), *range(len(content) - 8, len(content))]:
        whole.write_bytes(content[:place] + bytes([content[place] ^ 1 << random.integers(8)]) + content[place + 1 :])
        try:
            assert pixels(read_cifar10(whole)) == right
        except DataError as error:
            refused += 1
            assert error.where == whole and error.hint and "\n" not in error.what
    assert refused > 45


def header(kind: bytes, size: int) -> bytes:
    entry = tarfile.TarInfo("header")
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


BOMBS = {
    "pax": header(tarfile.XHDTYPE, 2**25),
    "long name": header(tarfile.GNUTYPE_LONGNAME, 2**25),
    "sparse": header(tarfile.GNUTYPE_SPARSE, 0)[:482] + b"\1" + header(tarfile.GNUTYPE_SPARSE, 0)[483:],
    "chain": b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_headers_that_unpack_to_bombs_take_no_memory(name, tmp_path):
    head = bytearray(BOMBS[name])
    if head:
        head[148:156] = f"{256 + sum(head[:148]) + sum(head[156:512]):06o}\0 ".encode()
    more = (b"00000000001\0" * 42 + b"\1" * 8) if name == "sparse" else header(tarfile.XGLTYPE, 512) + b"13 a=" + b"b" * 507
    with gzip.open(tmp_path / "cifar.tar.gz", "wb", compresslevel=1) as file:
        file.write(head + more * (2**25 // len(more)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="cannot read the archive"):
            read_cifar10(tmp_path / "cifar.tar.gz")
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2**24


def test_links_in_an_archive_are_no_files(tmp_path):
    (tmp_path / "secret").write_bytes(b"\1" * 3073)
    archive = packed(tmp_path / "cifar.tar", {n: c for n, c in binary().items() if n != "test_batch.bin"}, mode="w")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        entry = tarfile.TarInfo("test_batch.bin")
        entry.type, entry.linkname = kind, str(tmp_path / "secret")
        with tarfile.open(archive, "a") as tar:
            tar.addfile(entry)
        with pytest.raises(DataError, match=r"test_batch\.bin not found"):
            read_cifar10(archive)


def test_nothing_of_an_archive_is_written(tmp_path):
    archive = packed(tmp_path / "cifar.tar.gz", binary(), folder="../")
    read_cifar10(archive)
    assert sorted(tmp_path.rglob("*")) == [archive]


def test_only_files_of_sensible_size_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("vitrail.data.readers.cifar10.MAX_BYTES", 100_000)
    files = binary()
    assert len(read_cifar10(packed(tmp_path / "a.tar.gz", files)).splits["test"]) == COUNT
    large = files | {"data_batch_1.bin": files["data_batch_1.bin"] * 2}
    for path in (packed(tmp_path / "b.tar.gz", large), unpacked(tmp_path / "large", large)):
        with pytest.raises(DataError, match="more than"):
            read_cifar10(path)
    monkeypatch.setattr("vitrail.data.readers.cifar10.MAX_ARCHIVE", 300_000)
    with pytest.raises(DataError, match="more than"):
        read_cifar10(packed(tmp_path / "c.tar.gz", files))


def test_other_compressions_are_refused_without_trying_them(tmp_path):
    for mode in ("w:bz2", "w:xz"):
        archive = packed(tmp_path / "cifar.tar", binary(), mode=mode)
        for content in (archive.read_bytes(), archive.read_bytes()[:5000]):
            archive.write_bytes(content)
            with pytest.raises(DataError, match="cannot read the archive"):
                read_cifar10(archive)


def test_an_archive_is_no_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.tar.gz")
    with pytest.raises(DataError, match="no regular file"):
        read_cifar10(tmp_path / "pipe.tar.gz")


def test_a_broken_archive_is_refused(tmp_path):
    whole = packed(tmp_path / "cifar.tar.gz", binary()).read_bytes()
    half = len(whole) // 2
    for number, content in enumerate([b"", b"no archive", whole[:half], whole[:half] + b"\0" * 99 + whole[half + 99 :]]):
        (tmp_path / f"{number}.tar.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read the archive|not found"):
            read_cifar10(tmp_path / f"{number}.tar.gz")
