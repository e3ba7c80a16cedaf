"""Labels and captions in JSON: a line for each image, a list of objects, and Karpathy's files."""

import json

import pytest

from data.folders import fill
from vitrail.data.readers.sources import open_data, read_data
from vitrail.errors import DataError
from vitrail.tasks.captioning.images.sources import open_captions, read_captions

COUNT = 6


def label(number: int) -> str:
    return "cat" if number % 2 else "dog"


def karpathy(number: int) -> dict:
    return {"filename": f"{number}.png", "split": "train", "sentences": [{"raw": "a dog"}, {"raw": "the dog"}]}


def json_lines(file, rows):
    file.write_text("\ufeff" + "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def csv_lines(file, rows):
    lines = [",".join(row.values()) for row in rows]
    file.write_text("\n".join(["file_name,label", *lines]))
    return file


@pytest.mark.parametrize(("name", "write"), [("metadata.jsonl", json_lines), ("metadata.csv", csv_lines)])
def test_the_table_of_datasets_library_labels_images_beside_it_and_inside_splits(tmp_path, name, write):
    flat = fill(tmp_path / "flat", COUNT)
    write(flat / name, ({"file_name": f"{i}.png", "label": label(i)} for i in range(COUNT)))
    (flat / "other.csv").write_text("a,b\n1,2\n")
    assert open_data(flat).classes == ["cat", "dog"] and len(open_data(flat).split("all")) == COUNT
    assert open_data(flat / name).splits == open_data(flat).splits
    for split, count in (("train", COUNT), ("validation", 2), ("test", 3)):
        folder = fill(tmp_path / "split" / split, count + (split == "test"))
        write(folder / name, ({"file_name": f"{i}.png", "label": label(i)} for i in range(count)))
    data = open_data(tmp_path / "split")
    assert {split: len(items) for split, items in data.splits.items()} == {"train": COUNT, "val": 2, "test": 3}
    assert data.classes == ["cat", "dog"] and data.splits["test"][1].name == "test/1.png"
    assert "left out: 1 image that no table names" in data.notes


def test_lines_of_json_may_hold_numbers_lists_and_nothing_and_bad_ones_are_named(tmp_path):
    fill(tmp_path, COUNT)
    rows = [{"image": "0.png", "label": ["cat", "dog"]}, {"image": "1.png", "label": None}, {"image": "2.png", "label": "cat"}]
    file = json_lines(tmp_path / "labels.jsonl", rows)
    assert [item.target for item in read_data(file).splits["all"]] == [(0, 1), (), (0,)]
    file.write_text('{"image": "0.png", "label": 3}\nnothing\n{"image": "1.png", "label": 10}\n')
    contents = read_data(file)
    assert contents.classes == ["3", "10"]
    assert [(issue.kind, issue.path) for issue in contents.issues] == [("bad-row", f"{file}:2")]


@pytest.mark.parametrize(
    "values",
    [
        [{"image": f"{i}.png", "caption": ["a dog", "the dog"]} for i in range(COUNT)],
        [{"image": f"{i}.png", "caption": text} for i in range(COUNT) for text in ("a dog", "the dog")],
        {"images": [karpathy(i) for i in range(COUNT)]},
        {"images": [{**karpathy(i), "filepath": "gone"} for i in range(COUNT)]},
    ],
)
def test_captions_in_json_are_read_whoever_wrote_them(tmp_path, values):
    fill(tmp_path / "Images", COUNT)
    file = tmp_path / "dataset.json"
    file.write_text(json.dumps(values))
    items = open_captions(file).split("all")
    assert len(items) == COUNT and all(item.target == ("a dog", "the dog") for item in items)


def test_karpathys_restval_is_for_training_and_a_broken_image_is_named(tmp_path):
    fill(tmp_path, COUNT)
    splits = ("train", "restval", "restval", "val", "test")
    images = [{"filename": f"{i}.png", "split": split, "sentences": [{"raw": "a dog"}]} for i, split in enumerate(splits)]
    file = tmp_path / "dataset_x.json"
    file.write_text(json.dumps({"images": [*images, {"filename": "5.png", "split": "train", "sentences": []}]}))
    contents = read_captions(file)
    assert {split: len(items) for split, items in contents.splits.items()} == {"train": 3, "val": 1, "test": 1}
    assert [issue.path for issue in contents.issues] == [f"{file}, image 6"]


def test_captions_of_each_split_may_lie_in_its_folder(tmp_path):
    for split, count in (("train", 4), ("dev", 2)):
        folder = fill(tmp_path / split, count)
        json_lines(folder / "metadata.jsonl", ({"file_name": f"{i}.png", "text": "a dog"} for i in range(count)))
    assert {split: len(items) for split, items in open_captions(tmp_path).splits.items()} == {"train": 4, "val": 2, "test": 0}


def test_json_without_captions_says_what_would_be_read(tmp_path):
    file = tmp_path / "list.json"
    file.write_text(json.dumps([{"image": "0.png", "label": "cat"}]))
    with pytest.raises(DataError, match="no column is called 'caption'; there are 'image', 'label'"):
        open_captions(file)
