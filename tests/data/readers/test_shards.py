"""Archives of samples are read where they lie, whatever their order, and every issuey sample is named."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitrail.data.images.decode import FORMATS, check_head, decode
from vitrail.data.readers.shards import expand
from vitrail.data.readers.sources import open_data, read_data
from vitrail.errors import DataError


def png(grey: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (3, 2), grey).save(file, "PNG")
    return file.getvalue()


def shard(file: Path, files: dict[str, bytes], mode: str = "w", format: int = tarfile.PAX_FORMAT) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, mode, format=format) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file


def samples(first: int, count: int = 4) -> dict[str, bytes]:
    """Grey pictures and classes that tell which sample they are."""
    files = {}
    for number in range(first, first + count):
        files |= {f"{number:04d}.png": png(number), f"{number:04d}.cls": f"{number % 2}\n".encode()}
    return files


# names


@given(st.integers(0, 2000), st.integers(0, 30), st.integers(1, 6))
def test_numbers_count_from_the_first_to_the_last_as_wide_as_the_first(first, more, width):
    names = expand(f"a-{{{first:0{width}d}..{first + more:0{width}d}}}.tar")
    assert [int(name[2:-4]) for name in names] == list(range(first, first + more + 1))
    assert all(len(name[2:-4]) == max(width, len(str(int(name[2:-4])))) for name in names)


def test_braces_may_hold_words_and_braces():
    assert expand("a.tar") == ["a.tar"]
    assert expand("{a,b}{1..2}") == ["a1", "a2", "b1", "b2"]
    assert expand("x-{train-{08..10},val-{00,01}}.tar") == [
        "x-train-08.tar", "x-train-09.tar", "x-train-10.tar", "x-val-00.tar", "x-val-01.tar",
    ]  # fmt: skip


@pytest.mark.parametrize("pattern", ["{}", "{a}", "{2..1}", "{0..999999999}", "{a..c}", "{-1..2}"])
def test_braces_that_mean_nothing_are_refused(pattern):
    with pytest.raises(DataError) as error:
        expand(f"shards-{pattern}.tar")
    assert error.value.where == f"shards-{pattern}.tar" and error.value.hint


# samples


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_sample_has_its_picture_label_and_name(format, tmp_path):
    for number in range(3):
        shard(tmp_path / f"shards-{number:03d}.tar", samples(4 * number), format=format)
    data = open_data(f"wds:{tmp_path}/shards-{{000..002}}.tar")
    items = sorted(data.split("all"), key=lambda item: item.name)
    assert [item.name for item in items] == [f"shards-{n // 4:03d}/{n:04d}" for n in range(12)]
    assert data.classes == ["0", "1"] and [item.target for item in items] == [n % 2 for n in range(12)]
    for number in np.random.default_rng(0).permutation(12):  # in any order
        assert decode(items[number].image, channels=1).getpixel((0, 0)) == number
    assert not data.has_splits and data.splits["test"] and data.splits["val"]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ({"cls": b"7"}, "7"),
        ({"cls": b" cat\n"}, "cat"),
        ({"txt": "고양이".encode()}, "고양이"),
        ({"json": b'{"label": 12, "other": [1]}'}, "12"),
        ({"json": b'{"label": "cat"}'}, "cat"),
        ({"cls": b"\xef\xbb\xbfcat\r\n"}, "cat"),
        ({"txt": b"\xef\xbb\xbf7"}, "7"),
        ({"json": b'\xef\xbb\xbf{"label": "cat"}'}, "cat"),
        ({"json": b'{"label": "dog"}', "txt": b"dog", "cls": b"cat"}, "cat"),
    ],
)
def test_the_label_is_a_number_or_a_name(label, name, tmp_path):
    files = {"a.jpg": png(0)} | {f"a.{suffix}": content for suffix, content in label.items()}
    assert read_data(f"wds:{shard(tmp_path / 'x.tar', files)}").classes == [name]


def test_names_of_archives_tell_the_split(tmp_path):
    for number, name in enumerate(["train-0", "train-1", "imagenet_validation-0", "TEST"]):
        shard(tmp_path / f"{name}.tar", samples(4 * number))
    data = open_data(f"wds:{tmp_path}/{{train-{{0..1}},imagenet_validation-0,TEST}}.tar")
    assert {split: len(items) for split, items in data.splits.items()} == {"train": 8, "val": 4, "test": 4}
    assert data.assignment is None and data.has_splits
    shard(tmp_path / "more.tar", samples(50))
    with pytest.raises(DataError, match=r"more\.tar names no split"):
        open_data(f"wds:{tmp_path}/{{more,TEST}}.tar")


def test_folders_below_the_common_one_tell_the_split_too(tmp_path):
    folder = tmp_path / "test pictures"  # stands above all archives and tells nothing
    for number, name in enumerate(["train/0", "train/1", "val/test-0", "holdout/test/0"]):
        shard(folder / f"{name}.tar", samples(4 * number))
    data = open_data(f"wds:{folder}/{{train/{{0..1}},val/test-0,holdout/test/0}}.tar")
    assert {split: len(items) for split, items in data.splits.items() if items} == {"train": 7, "val": 1, "test": 8}
    assert not open_data(f"wds:{folder}/train/{{0..1}}.tar").has_splits
    shard(folder / "more" / "0.tar", samples(50))
    with pytest.raises(DataError, match=r"more/0\.tar names no split"):
        open_data(f"wds:{folder}/{{more,train}}/0.tar")


FAULTY = {
    "no label": ({"k.png": png(0)}, "no-label"),
    "no image": ({"k.cls": b"1"}, "no-image"),
    "two images": ({"k.png": png(0), "k.jpg": png(0), "k.cls": b"1"}, "no-image"),
    "an empty label": ({"k.png": png(0), "k.cls": b" \n"}, "no-label"),
    "a label that is no text": ({"k.png": png(0), "k.cls": b"\xff"}, "no-label"),
    "a novel": ({"k.png": png(0), "k.txt": b"x" * 2**17}, "no-label"),
    "no JSON": ({"k.png": png(0), "k.json": b"{"}, "no-label"),
    "JSON without a label": ({"k.png": png(0), "k.json": b"{}"}, "no-label"),
    "JSON that is a list": ({"k.png": png(0), "k.json": b"[1]"}, "no-label"),
    "JSON too deep": ({"k.png": png(0), "k.json": b"[" * 60_000}, "no-label"),
    "a label that is true": ({"k.png": png(0), "k.json": json.dumps({"label": True}).encode()}, "no-label"),
    "a label with half a letter": ({"k.png": png(0), "k.json": b'{"label": "\\ud800"}'}, "no-label"),
    "a label that is a list": ({"k.png": png(0), "k.json": json.dumps({"label": [1]}).encode()}, "no-label"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_an_issuey_sample_is_named_by_archive_and_key(name, tmp_path):
    files, kind = FAULTY[name]
    file = shard(tmp_path / "x.tar", samples(0) | files)
    (issue,) = read_data(f"wds:{file}").issues
    assert (issue.kind, issue.path) == (kind, f"{file}/k") and issue.what
    with pytest.raises(DataError, match=r"x\.tar/k"):
        open_data(f"wds:{file}")


def test_links_and_folders_are_no_files(tmp_path):
    file = shard(tmp_path / "x.tar", samples(0))
    with tarfile.open(file, "a") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo("k.png")
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
        entry = tarfile.TarInfo("k.cls")  # with holes: its content does not lie there as it is
        entry.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": "1"}
        tar.addfile(entry)
    contents = read_data(f"wds:{file}")
    assert len(contents.splits["all"]) == 4 and not contents.issues


def test_archives_that_cannot_be_read_are_refused(tmp_path):
    compressed = shard(tmp_path / "x.tar.gz", samples(0), mode="w:gz")
    shard(tmp_path / "empty.tar", {})
    (tmp_path / "text.tar").write_text("no archive")
    for name in (compressed.name, "empty.tar", "text.tar", "missing.tar", "missing-{0..3}.tar", ""):
        with pytest.raises(DataError) as error:
            open_data(f"wds:{tmp_path}/{name}" if name else "wds:")
        assert error.value.hint and error.value.where


def test_an_archive_cut_short_is_refused_or_its_last_picture_is(tmp_path):
    file = shard(tmp_path / "x.tar", samples(0))
    whole = file.read_bytes()
    for length in range(100, len(whole), 511):
        file.write_bytes(whole[:length])
        try:
            for item in open_data(f"wds:{file}").split("all"):
                decode(item.image)
        except DataError as error:
            assert "x.tar" in str(error)


def test_a_damaged_header_is_refused_wherever_it_stands(tmp_path):
    """The library takes a header that it cannot read for the end of the archive."""
    file = shard(tmp_path / "x.tar", samples(0, 10))
    whole = file.read_bytes()
    with tarfile.open(file) as tar:
        headers = [entry.offset for entry in tar]
    assert len(headers) == 20
    for offset in headers:
        for damaged in (bytes([whole[offset] ^ 1]), bytes(512)):  # a flipped bit, a block that was lost
            file.write_bytes(whole[:offset] + damaged + whole[offset + len(damaged) :])
            with pytest.raises(DataError, match="cannot read the archive") as error:
                read_data(f"wds:{file}")
            assert error.value.where == file and error.value.hint


def test_an_archive_that_leads_back_into_itself_is_refused(tmp_path):
    file = shard(tmp_path / "x.tar", samples(0, 1))
    entry = tarfile.TarInfo("again.png")
    entry.size = -512
    file.write_bytes(file.read_bytes()[: 4 * 512] + entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(DataError, match="cannot read the archive"):
        read_data(f"wds:{file}")


@pytest.mark.parametrize("format", FORMATS)
def test_an_image_in_an_archive_is_what_it_is_outside(format, tmp_path):
    """Whole or damaged: the same picture, or refused likewise."""
    content, random = io.BytesIO(), np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(content, format)
    whole = content.getvalue()
    contents = [whole, *(whole[:length] for length in range(0, len(whole), len(whole) // 20))]
    for _ in range(20):
        damaged = bytearray(whole)
        damaged[random.integers(min(len(whole), 200))] = random.integers(256)
        contents.append(bytes(damaged))
    files = {f"{number}.png": content for number, content in enumerate(contents)}
    file = shard(tmp_path / "x.tar", files | {f"{number}.cls": b"0" for number in range(len(contents))})
    for item in read_data(f"wds:{file}").splits["all"]:
        bare = contents[int(Path(item.name).name)]
        for look in (check_head, lambda source: decode(source).tobytes()):
            assert outcome(look, item.image) == outcome(look, bare)


def outcome(look, source) -> object:
    try:
        return look(source)
    except DataError as error:
        return error.what
