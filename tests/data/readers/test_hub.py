"""Data sets of the datasets library, saved on this machine: images are read when asked for, and by our own decoder."""

import io
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from PIL import Image

from vitrail.data.images.decode import decode
from vitrail.data.readers.sources import open_data, read_data
from vitrail.errors import ConfigError, DataError

ANIMALS = ClassLabel(names=["dog", "cat", "ant"])


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("socket.socket.connect", lambda *address: pytest.fail(f"asked the network for {address}"))


def picture(grey: int) -> dict:
    file = io.BytesIO()
    Image.new("L", (3, 2), grey).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def table(labels: list, feature=ANIMALS, first: int = 0, image: str = "image", label: str = "label") -> Dataset:
    features = Features({image: datasets.Image(), label: feature, "note": Value("string")})
    pictures = [picture(first + number) for number in range(len(labels))]
    return Dataset.from_dict({image: pictures, label: labels, "note": ["x"] * len(labels)}, features=features)


def saved(data, folder: Path) -> str:
    data.save_to_disk(str(folder))
    return f"hf:{folder}"


def test_every_image_has_its_pixels_label_and_name(tmp_path):
    data = DatasetDict(train=table([0, 1, 2, 0]), validation=table([1, 0], first=10), test=table([2], first=20))
    contents = read_data(saved(data, tmp_path / "animals"))
    assert contents.classes == ["dog", "cat", "ant"] and not contents.issues
    assert {s: [i.name for i in items] for s, items in contents.splits.items()} == {
        "train": [f"train/{n:05d}" for n in range(4)], "val": ["validation/00000", "validation/00001"], "test": ["test/00000"],
    }  # fmt: skip
    assert [i.target for i in contents.splits["train"]] == [0, 1, 2, 0]
    greys = {s: [decode(i.image, channels=1).getpixel((0, 0)) for i in items] for s, items in contents.splits.items()}
    assert greys == {"train": [0, 1, 2, 3], "val": [10, 11], "test": [20]}


def test_a_split_of_the_name_itself_counts_before_those_like_it_and_several_alike_are_told(tmp_path):
    more = {"train": table([0, 1]), "test": table([2], first=20), "test2": table([2, 2], first=30)}
    contents = read_data(saved(DatasetDict(more), tmp_path / "a"))
    assert {split: len(items) for split, items in contents.splits.items()} == {"train": 2, "test": 1}
    del more["test"]
    contents = read_data(saved(DatasetDict(more, test3=table([1], first=40)), tmp_path / "b"))
    assert len(contents.splits["test"]) == 3 and "the split test is made of test2 and test3" in contents.notes


@pytest.mark.parametrize(
    ("feature", "label", "labels", "classes", "expected"),
    [
        (Value("int64"), "label", [10, 2, 10], ["2", "10"], [1, 0, 1]),
        (Value("string"), "labels", ["b", "a ", "b"], ["a", "b"], [1, 0, 1]),
        (Value("large_string"), "labels", ["b", "a ", "b"], ["a", "b"], [1, 0, 1]),
        (ANIMALS, "fine_label", [2, 0, 1], ["dog", "cat", "ant"], [2, 0, 1]),
        (ANIMALS, "species", [2, 0, 1], ["dog", "cat", "ant"], [2, 0, 1]),
        (List(ANIMALS), "label", [[2, 0], [], [1]], ["dog", "cat", "ant"], [(0, 2), (), (1,)]),
    ],
)
def test_labels_of_every_kind(feature, label, labels, classes, expected, tmp_path):
    data = open_data(saved(DatasetDict(test=table(labels, feature, label=label)), tmp_path / "data"))
    assert data.classes == classes and [i.target for i in data.splits["test"]] == expected
    assert data.multi_label == isinstance(expected[0], tuple)


@pytest.mark.parametrize("other", [ClassLabel(names=["cat", "dog", "ant"]), Value("int64"), List(ANIMALS)])
def test_splits_with_other_classes_are_refused(other, tmp_path):
    data = DatasetDict(train=table([0, 1, 2]), test=table([[0], [1]] if isinstance(other, List) else [0, 1], other))
    with pytest.raises(DataError, match="'test'") as error:
        open_data(saved(data, tmp_path / "data"))
    assert error.value.hint


@pytest.mark.parametrize("missing", [None, -1])
def test_a_row_without_a_label_is_an_issue(missing, tmp_path):
    source = saved(DatasetDict(train=table([0, missing, 1])), tmp_path / "data")
    (issue,) = read_data(source).issues
    assert (issue.kind, issue.path) == ("no-label", f"{source}/train/00001")
    with pytest.raises(DataError, match="train/00001"):
        open_data(source)


def test_an_image_that_is_none_is_refused_when_it_is_read(tmp_path):
    gone = tmp_path / "gone.png"
    gone.write_bytes(b"here while the data is saved")
    rows = {"image": [None, {"bytes": b"text", "path": None}, {"bytes": None, "path": str(gone)}], "label": [0, 1, 2]}
    data = Dataset.from_dict(rows, features=Features({"image": datasets.Image(), "label": ANIMALS}))
    source = saved(data, tmp_path / "data")
    gone.unlink()
    items = read_data(source).splits["all"]
    with pytest.raises(DataError, match="the row has no image"):
        decode(items[0].image)
    for number, item in enumerate(items):
        with pytest.raises(DataError, match=f"{source}/all/0000{number}"):
            decode(item.image)


def test_a_folder_of_parquet_files_and_one_of_images_are_read(tmp_path):
    (tmp_path / "parquet").mkdir()
    table([0, 1, 2]).to_parquet(str(tmp_path / "parquet" / "train-0.parquet"))
    contents = read_data(f"hf:{tmp_path / 'parquet'}")
    assert contents.classes == ["dog", "cat", "ant"] and [i.target for i in contents.splits["train"]] == [0, 1, 2]
    assert np.asarray(decode(contents.splits["train"][2].image, channels=1)).tolist() == [[2] * 3] * 2
    for name in ("red", "blue"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4), name).save(tmp_path / "images" / name / "1.png")
    contents = read_data(f"hf:{tmp_path / 'images'}")
    assert {contents.classes[i.target]: decode(i.image).getpixel((0, 0)) for i in contents.splits["train"]} == {
        "red": (255, 0, 0), "blue": (0, 0, 255),
    }  # fmt: skip


def test_data_without_images_or_labels_is_refused(tmp_path):
    words = Dataset.from_dict({"text": ["a"], "label": [1]})
    pictures = Dataset.from_dict({"image": [picture(0)]}, features=Features({"image": datasets.Image()}))
    two = Dataset.from_dict(
        {"image": [picture(0)], "a": [0], "b": [1]}, features=Features({"image": datasets.Image(), "a": ANIMALS, "b": ANIMALS})
    )
    for number, (data, word) in enumerate([(words, "images"), (pictures, "labels"), (two, "labels"), (table([-1]), "labels")]):
        with pytest.raises(DataError, match=word) as error:
            open_data(saved(data, tmp_path / str(number)))
        assert error.value.hint


def test_what_cannot_be_opened_is_a_data_error_of_three_lines(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    asked = []

    def load(name, revision=None):
        asked.append((name, revision))
        raise ConnectionError("no network\nat all")

    with pytest.raises(DataError):
        open_data(f"hf:{tmp_path / 'empty'}")
    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(DataError, match="no network\nwhere: hf:someone/animals@v1"):
        open_data("hf:someone/animals@v1")
    with pytest.raises(DataError):
        open_data("hf:animals")
    assert asked == [("someone/animals", "v1"), ("animals", None)]


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"vitrail\[hf\]"):
        open_data("hf:someone/animals")
