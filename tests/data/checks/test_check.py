"""The check finds every planted issue with its path, and nothing else."""

import io
import json
import shutil
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitrail.data.checks.check import check_data
from vitrail.errors import DataError

CLASSES = ("ant", "bee", "cat", "dog", "eel")
COUNTS = {"train": 28, "val": 6, "test": 6}  # of every class: 200 in all


@pytest.fixture(scope="session")
def clean(tmp_path_factory) -> Path:
    """200 different pictures of 6×5 pixels in three splits and five classes."""
    root, random = tmp_path_factory.mktemp("check") / "clean", np.random.default_rng(0)
    for split, count in COUNTS.items():
        for name in CLASSES:
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (5, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png", compress_level=1)
    return root


def pairs(issues) -> set[tuple[str, str]]:
    return {(issue.kind, issue.path) for issue in issues}


def giant() -> bytes:
    """The head of a PNG of 20,000×20,000 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + bytes(20)


def encoded(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def plant(root: Path) -> set[tuple[str, str]]:
    """37 issues in a clean folder: the kind of each, and the path it has."""
    issues: list[tuple[str, Path | str]] = []
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    whole, jpeg = encoded(noise, "PNG"), encoded(noise, "JPEG")
    damaged = {
        "text.jpg": b"this is no picture",
        "nothing.jpg": b"",
        "page.gif": b"<html></html>",
        "head.png": whole[:20],
        "cut.png": whole[: len(whole) // 2],
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "changed.png": whole[:3000] + bytes(64) + whole[3064:],
        "ico.bmp": encoded(noise, "ICO"),
        "giant.png": giant(),
    }
    for number, (name, content) in enumerate(damaged.items()):
        file = root / ("train", "val", "test")[number % 3] / ("cat", "dog")[number % 2] / name
        file.write_bytes(content)
        issues.append(("unreadable", file))
    (root / "train" / "cat" / "link.png").symlink_to("nowhere.png")
    issues.append(("unreadable", root / "train" / "cat" / "link.png"))
    for folder in ("train/fox", "val/fox", "test/gnu"):
        (root / folder).mkdir()
        issues.append(("empty-class", root / folder))
    for split, name in (("val", "ant"), ("test", "bee")):
        shutil.rmtree(root / split / name)
        issues.append(("missing-class", f"{split}/{name}"))
    for file in (root / "val" / "eel").iterdir():
        file.unlink()
    issues.append(("missing-class", "val/eel"))
    for number in range(10):  # the same picture in two splits: a copy, or saved anew
        first, name = root / "train" / CLASSES[number % 3 + 1] / f"{number}.png", CLASSES[number % 3 + 1]
        other = root / ("val" if name == "bee" else "test") / name
        if number % 2:
            shutil.copy(first, other / f"copy {number}.png")
        else:
            Image.open(first).save(other / f"copy {number}.{('bmp', 'webp')[number // 2 % 2]}", lossless=True)
        issues.append(("duplicate", first))
    for number in range(20, 26):  # the same picture of two classes
        first = root / "train" / "ant" / f"{number}.png"
        shutil.copy(first, root / ("train" if number % 2 else "test") / "dog" / f"other {number}.png")
        issues.append(("conflict", first))
    for folder in ("", "train", "train", "val", "test"):
        file = root / folder / f"stray {len(issues)}.png"
        file.write_bytes(encoded(noise, "PNG"))
        issues.append(("no-class", file))
    assert len(issues) == 37
    return {(kind, str(path)) for kind, path in issues}


def test_a_clean_set_of_200_has_no_issue(clean):
    seen = []
    found = check_data(clean, on_start=seen.append, on_image=seen.append)
    assert found.issues == found.notices == []
    assert seen == [200, *[1] * 200]
    assert found.counts == {split: dict.fromkeys(CLASSES, count) for split, count in COUNTS.items()}


def test_all_37_planted_issues_are_found_with_their_paths(clean, tmp_path):
    root = shutil.copytree(clean, tmp_path / "planted")
    planted = plant(root)
    shutil.copy(root / "train" / "cat" / "20.png", root / "train" / "cat" / "again.png")  # harms nothing
    found = check_data(root)
    assert ("duplicate", str(root / "train" / "cat" / "20.png")) in pairs(found.notices)
    assert pairs(found.issues) - planted == set() and planted - pairs(found.issues) == set()
    assert len(found.issues) == 37
    for issue in found.issues:
        if issue.kind in ("duplicate", "conflict"):
            number = int(Path(issue.path).stem)
            (other,) = root.glob(f"*/*/{'copy' if issue.kind == 'duplicate' else 'other'} {number}.*")
            assert str(other) in issue.what
    assert all(issue.what for issue in found.issues)


def flat(root: Path, *, shade: int = 0, **counts: int) -> Path:
    """Classes of pictures that are all different, and differ from those made with another ``shade``."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (4, 3), (shade % 256, shade // 256, 9)).save(root / name / f"{number}.png")
            shade += 1
    return root


def test_what_harms_nothing_is_a_notice(tmp_path):
    root = flat(tmp_path, cat=40, dog=3)
    (root / "notes.txt").write_text("text")
    found = check_data(root)
    assert found.issues == []
    assert pairs(found.notices) == {("ignored", str(root / "notes.txt")), ("imbalance", "all")}
    assert "--balance" in next(notice.what for notice in found.notices if notice.kind == "imbalance")


def test_colour_profiles_other_than_srgb_are_noted(tmp_path):
    root = flat(tmp_path, cat=3, dog=3)
    for number, content in enumerate([b"damaged", b"damaged, too"]):
        picture = Image.fromarray(np.full((4, 4, 3), 200 + number, np.uint8))
        picture.save(root / "cat" / f"profiled{number}.png", icc_profile=content)
    (notice,) = check_data(root).notices
    assert (notice.kind, notice.path) == ("profile", str(root / "cat" / "profiled0.png"))
    assert "and 1 more" in notice.what and "not applied" in notice.what


@pytest.mark.parametrize(
    ("splits", "harmful"),
    [(["train", "val", "test"], []), (["train", "val"], []), (["train", "test"], ["train"]), (["train"], ["train"])],
)
def test_copies_in_one_split_are_issues_where_that_split_will_be_dealt(tmp_path, splits, harmful):
    for number, split in enumerate(splits):
        flat(tmp_path / split, cat=2, dog=2, shade=10 * number)
        shutil.copy(tmp_path / split / "cat" / "0.png", tmp_path / split / "cat" / "again.png")
    found = check_data(tmp_path)
    copies = {split: ("duplicate", f"{tmp_path}/{split}/cat/0.png") for split in splits}
    assert pairs(found.issues) == {copies[split] for split in harmful}
    assert pairs(found.notices) == {copies[split] for split in splits if split not in harmful}
    assert all("different splits" in issue.what for issue in found.issues)
    assert not any("different splits" in notice.what for notice in found.notices)


def test_a_copy_is_told_by_its_upright_pixels(tmp_path):
    """Grey stored as colour, another orientation of the camera and another format are the same picture."""
    root, random = tmp_path, np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (root / split / name).mkdir(parents=True)
    grey = Image.fromarray(random.integers(0, 256, (4, 6), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    grey.save(root / "train" / "cat" / "a.png")
    grey.convert("RGB").rotate(180).save(root / "test" / "cat" / "b.webp", lossless=True, exif=exif)
    Image.fromarray(np.asarray(grey).reshape(6, 4)).save(root / "test" / "dog" / "c.png")  # the same bytes, another shape
    grey.rotate(180).save(root / "train" / "dog" / "d.png")
    (issue,) = check_data(root).issues
    assert (issue.kind, issue.path) == ("duplicate", str(root / "train" / "cat" / "a.png")) and "b.webp" in issue.what


def test_a_group_of_copies_is_one_issue_with_all_its_paths(tmp_path):
    root = flat(tmp_path / "train", cat=2, dog=2).parent
    flat(tmp_path / "val", cat=3, dog=0)
    for name in ("1.png", "2.png"):
        shutil.copy(root / "val" / "cat" / "0.png", root / "val" / "cat" / name)
    shutil.copy(root / "train" / "dog" / "0.png", root / "val" / "dog" / "9.png")
    four, two = check_data(root).issues
    assert four.path == str(root / "train" / "cat" / "0.png") and two.path == str(root / "train" / "dog" / "0.png")
    assert all(str(root / "val" / "cat" / f"{number}.png") in four.what for number in range(3))


def test_all_issues_of_a_table_are_listed(tmp_path):
    flat(tmp_path, pictures=9)
    (tmp_path / "pictures" / "8.png").write_text("no picture")
    Image.open(tmp_path / "pictures" / "0.png").save(tmp_path / "copy.bmp")
    lines = [
        "image,label,split", "pictures/0.png,cat,train", "pictures/1.png,dog,train", "pictures/2.png,cat,val",
        "pictures/3.png,,train", "pictures/1.png,dog,test", "gone.png,cat,train", "pictures/4.png,cat,nowhere",
        "pictures/5.png,dog", "pictures/8.png,dog,val", "copy.bmp,cat,val", "pictures/6.png,dog,val",
    ]  # fmt: skip
    file = tmp_path / "labels.csv"
    file.write_text("\n".join(lines))
    assert pairs(check_data(file).issues) == {
        ("no-label", f"{file}:5"), ("repeated-row", f"{file}:6"), ("missing-file", f"{file}:7"), ("bad-split", f"{file}:8"),
        ("bad-row", f"{file}:9"), ("unreadable", f"{tmp_path}/pictures/8.png"), ("duplicate", f"{tmp_path}/pictures/0.png"),
    }  # fmt: skip


def test_several_labels_are_counted_each_and_must_agree(tmp_path):
    flat(tmp_path, pictures=4)
    shutil.copy(tmp_path / "pictures" / "0.png", tmp_path / "copy.png")
    rows = ["pictures/0.png,cat;dog", "pictures/1.png,cat", "pictures/2.png,", "pictures/3.png,dog", "copy.png,dog"]
    (tmp_path / "labels.csv").write_text("\n".join(["image,label", *rows]))
    found = check_data(tmp_path / "labels.csv")
    assert found.counts == {"all": {"cat": 2, "dog": 3}}
    (issue,) = found.issues
    assert issue.kind == "conflict" and "cat and dog, dog" in issue.what


def test_the_document_is_json_and_complete(tmp_path):
    root = flat(tmp_path, cat=2, dog=12)
    (root / "cat" / "x.jpg").write_text("x")
    document = json.loads(json.dumps(check_data(root).to_json()))
    assert document["source"] == str(root) and document["images"] == 15 and document["classes"] == ["cat", "dog"]
    assert document["splits"] == {"all": {"cat": 3, "dog": 12}}
    assert document["sizes"] == {"min": [4, 3], "median": [4, 3], "max": [4, 3], "distinct": 1}
    assert document["modes"] == {"RGB": 14} and document["notices"] == []
    (issue,) = document["faults"]
    assert issue.keys() == {"kind", "path", "what"} and issue["path"] == str(root / "cat" / "x.jpg")


@pytest.mark.soak
def test_pictures_are_not_kept(tmp_path):
    for number in range(30):
        (tmp_path / str(number % 2)).mkdir(exist_ok=True)
        Image.new("RGB", (600, 500), (number, 0, 0)).save(tmp_path / str(number % 2) / f"{number}.png")
    check_data(tmp_path)  # Pillow loads its formats
    tracemalloc.start()
    check_data(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 600 * 500 * 3


@pytest.mark.parametrize("source", ["missing", "empty", "notes.txt"])
def test_what_is_no_data_at_all_is_refused(tmp_path, source):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError):
        check_data(tmp_path / source)
