"""Tables of images: paths, labels, splits, several labels, and every issue with its line."""

import os
from pathlib import Path

import pytest
from PIL import Image

from vitrail.data.readers.sources import open_data, read_data
from vitrail.data.readers.unlabelled import unlabelled_items
from vitrail.errors import DataError
from vitrail.files import LARGE


@pytest.fixture
def table(tmp_path):
    """``table("image,label", "a.png,cat")`` writes a table beside ten images, a.png to j.png."""
    for number, name in enumerate("abcdefghij"):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / f"{name}.png")

    def write(*lines: str, name: str = "labels.csv", encoding: str = "utf-8") -> Path:
        (tmp_path / name).write_bytes("\n".join(lines).encode(encoding))
        return tmp_path / name

    return write


def test_paths_start_at_the_tables_folder_and_may_leave_it(table, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    file = table("image,label", "../a.png,cat", f"{tmp_path}/b.png,dog", name="deep/list.CSV")
    monkeypatch.chdir(tmp_path / "deep")
    data = open_data("list.CSV")
    assert data.source == str(file)
    assert {item.name: item.image.resolve() for item in data.split("all")} == {
        "../a.png": tmp_path / "a.png", f"{tmp_path}/b.png": tmp_path / "b.png",
    }  # fmt: skip


# tables as others write them

WRITTEN = {
    "semicolons": ("image;label", "{};{}", "separated by ';'"),
    "tabs": ("image\tlabel", "{}\t{}", "separated by tabs"),
    "filename and label": ("filename,label", "{},{}", "image in the column 'filename', label in 'label'"),
    "path and class": ("path,class", "{},{}", "image in the column 'path', label in 'class'"),
    "file and label": ("File,Label", "{},{}", "image in the column 'File', label in 'Label'"),
    "image path and category": ("category,Image Path", "{1},{0}", "image in the column 'Image Path', label in 'category'"),
    "a number beside the image": ("id,image,label", "7,{},{}", "not used: 'id'"),
    "a number beside the file": (
        "id,filename,label",
        "7,{},{}",
        "image in the column 'filename', label in 'label', not used: 'id'",
    ),
    "two numbers": ("id,image_id,label", "7,{},{}", "image in the column 'image_id', label in 'label', not used: 'id'"),
    "all at once": (
        '\ufeff"filename";"class"\r',
        '"{}";"{}"\r',
        "separated by ';', image in the column 'filename', label in 'class'",
    ),
    "a label beside a class": ("image,label,class", "{},{},x", "not used: 'class'"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_table_with_other_columns_or_separators_is_understood_and_said(table, case):
    head, row, said = WRITTEN[case]
    file = table(head, *(row.format(f"{name}.png", "cat" if name < "f" else "dog") for name in "abcdefghij"), name="list.csv")
    data = open_data(file)
    assert data.classes == ["cat", "dog"] and len(data.split("all")) == 10
    assert data.notes == (() if said is None else (f"list.csv: {said}",))


@pytest.mark.parametrize("name", ["annotations.csv", "train.tsv", "LIST.CSV"])
def test_the_only_table_beside_images_is_read_whatever_its_name(table, tmp_path, name):
    file = table("filename\tclass", "a.png\tcat", "b.png\tdog", name=name)
    for source in (tmp_path, file):
        assert open_data(source).source == str(file) and open_data(source).classes == ["cat", "dog"]
    assert unlabelled_items(tmp_path, 3) == []
    table("a,b", "1,2", name="other.csv")
    with pytest.raises(DataError, match="10 images have no labels") as error:
        open_data(tmp_path)
    assert "other.csv" in error.value.hint and file.name in error.value.hint
    assert len(unlabelled_items(tmp_path, 3)) == 3


def test_a_table_of_other_things_beside_images_names_its_columns(table, tmp_path):
    table("time,temperature", "1,2", name="weather.csv")
    with pytest.raises(DataError, match="'time', 'temperature'") as error:
        open_data(tmp_path)
    assert "image,label" in error.value.hint
    assert len(unlabelled_items(tmp_path, 3)) == 3


# several labels


def test_one_row_with_several_labels_makes_all_multi_label(table):
    data = open_data(table("image,label,split", "a.png,dog;cat,train", "b.png,cat,val", "c.png,,test", "d.png, ant ; ant;,test"))
    assert data.multi_label and data.classes == ["ant", "cat", "dog"]
    assert {item.name: item.target for item in data.split("all")} == {"a.png": (1, 2), "b.png": (1,), "c.png": (), "d.png": (0,)}
    assert {s: data.counts(s) for s in data.splits} == {"train": [0, 1, 1], "val": [0, 1, 0], "test": [1, 0, 0]}


# issues

FAULTY = {
    "a.png,": ("no-label", "has no label"),
    "a.png, ": ("no-label", "has no label"),
    "gone.png,cat": ("missing-file", "gone.png"),
    ",cat": ("missing-file", "names no image"),
    ".,cat": ("missing-file", "no file"),
    "a.png": ("bad-row", "1 cells for 2 columns"),
    "a, black.png,cat": ("bad-row", "quote cells that contain commas"),
    "j.png,cat": ("repeated-row", "line 2"),
    "./j.png,dog": ("repeated-row", "line 2"),
    "x/../j.png,dog": ("repeated-row", "line 2"),
    "x\0y.png,cat": ("missing-file", "x"),
}


@pytest.mark.parametrize("row", FAULTY)
def test_an_issuey_row_is_named_by_file_and_line(table, row):
    kind, words = FAULTY[row]
    file = table("image,label", "j.png,cat", "", row, "b.png,dog")
    (issue,) = read_data(file).issues
    assert (issue.kind, issue.path) == (kind, f"{file}:4") and words in issue.what
    with pytest.raises(DataError, match=r"labels\.csv:4") as error:
        open_data(file)
    assert "data check" in error.value.hint


def test_all_issues_are_collected_and_counted(table):
    file = table("image,label,split", "a.png,cat,train", "gone.png,,nowhere", "a.png,cat,test", "b.png,cat", "c.png,dog,val")
    assert [(issue.kind, issue.path) for issue in read_data(file).issues] == [
        ("missing-file", f"{file}:3"),
        ("no-label", f"{file}:3"),
        ("bad-split", f"{file}:3"),
        ("repeated-row", f"{file}:4"),
        ("bad-row", f"{file}:5"),
    ]
    with pytest.raises(DataError, match="4 more faults"):
        open_data(file)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no columns are called 'image'"),
        (["a.png,cat"], "no columns are called 'image'"),
        (["image,split", "a.png,train"], "no columns are called 'label'"),
        (["image label", "a.png cat"], "no columns are called 'image'"),
        (["filename,path,label", "a.png,a.png,cat"], "'filename' and 'path' could both be the column of the image"),
        (["file,class,category", "a.png,cat,pet"], "'class' and 'category' could both be the column of the label"),
        (["id;breed;age", "a;cat;3"], "no columns are called 'label'; there are 'id', 'breed', 'age'"),
        (["image,label,image", "a.png,cat,b.png"], "2 columns are called 'image'"),
        (["image,label,split,split", "a.png,cat,val,val"], "2 columns are called 'split'"),
        (["image,label"], "no images listed"),
        (["image,label", 'a.png,"cat'], "damaged"),
        (["x" * 140_000], "damaged"),
    ],
)
def test_what_is_no_table_is_refused(table, lines, words):
    with pytest.raises(DataError, match=words) as error:
        read_data(table(*lines))
    assert "labels.csv" in str(error.value.where) and error.value.hint


def test_a_table_that_is_no_plain_file_or_too_large_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(LARGE + 1)  # takes no room
    for name, reason in (("pipe", "no regular"), ("zero", "no regular"), ("large", "longer than")):
        with pytest.raises(DataError, match=reason):
            open_data(tmp_path / f"{name}.csv")
