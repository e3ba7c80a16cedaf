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


def rows(source: Path) -> dict[str, tuple[str, object]]:
    """Split and label of every image; the label as the names of its classes."""
    contents = read_data(source)
    assert contents.issues == []
    return {
        item.name: (split, [contents.classes[i] for i in item.labels])
        for split, items in contents.splits.items()
        for item in items
    }


def test_columns_stand_in_any_order_beside_others(table):
    file = table("note,Split , label,IMAGE", "x,train,dog,a.png", ',TEST, cat ," b.png "', "", "y,Valid,dog,c.png")
    assert rows(file) == {"a.png": ("train", ["dog"]), "b.png": ("test", ["cat"]), "c.png": ("val", ["dog"])}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_text_is_utf_8_with_a_mark_or_without(table, encoding):
    file = table("image,label", "a.png,고양이", 'b.png,"cat, black"', encoding=encoding)
    assert rows(file) == {"a.png": ("all", ["고양이"]), "b.png": ("all", ["cat, black"])}


def test_lines_may_end_as_windows_ends_them(table):
    file = table("image,label\r", "a.png,cat\r", "b.png,dog\r")
    assert rows(file) == {"a.png": ("all", ["cat"]), "b.png": ("all", ["dog"])}


def test_classes_sort_naturally(table):
    assert read_data(table("image,label", "a.png,10", "b.png,2", "c.png,1")).classes == ["1", "2", "10"]


def test_paths_start_at_the_tables_folder_and_may_leave_it(table, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    file = table("image,label", "../a.png,cat", f"{tmp_path}/b.png,dog", name="deep/list.CSV")
    monkeypatch.chdir(tmp_path / "deep")
    data = open_data("list.CSV")
    assert data.source == str(file)
    assert {item.name: item.image.resolve() for item in data.split("all")} == {
        "../a.png": tmp_path / "a.png", f"{tmp_path}/b.png": tmp_path / "b.png",
    }  # fmt: skip


def test_without_splits_it_is_dealt_like_a_flat_folder(table):
    data = open_data(table("image,label", *(f"{name}.png,{'cat' if name < 'f' else 'dog'}" for name in "abcdefghij")))
    assert not data.has_splits and sum(map(sum, (data.counts(s) for s in data.splits))) == 10
    assert data.counts("test") == [1, 1] and set(data.assignment) == {f"{name}.png" for name in "abcdefghij"}
    again = open_data(data.source, split_seed=9, assignment=data.assignment)
    assert again.splits == data.splits


def test_training_alone_gives_some_to_validation_and_test_stays(table):
    lines = [f"{name}.png,{'cat' if name < 'e' else 'dog'},{'train' if name < 'i' else 'test'}" for name in "abcdefghij"]
    data = open_data(table("image,label,split", *lines))
    assert {item.name for item in data.splits["test"]} == {"i.png", "j.png"}
    assert len(data.splits["val"]) == 1 and len(data.splits["train"]) == 7 and data.has_splits


def test_a_table_with_all_splits_is_dealt_no_further(table):
    data = open_data(table("image,label,split", "a.png,x,train", "b.png,y,val", "c.png,y,test"))
    assert data.assignment is None and {s: data.counts(s) for s in data.splits} == {
        "train": [1, 0],
        "val": [0, 1],
        "test": [0, 1],
    }


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


def test_images_without_suffix_are_found_also_in_the_one_folder_that_holds_them(table, tmp_path):
    file = table("id,label", "a,cat", "b,dog")
    assert [item.image.name for item in open_data(file).split("all")] == ["a.png", "b.png"]
    (tmp_path / "photos").mkdir()
    for name in "abcdefghij":
        (tmp_path / f"{name}.png").rename(tmp_path / "photos" / f"{name}.png")
    data = open_data(file)
    assert {item.image.parent.name for item in data.split("all")} == {"photos"}
    assert data.notes == ("labels.csv: image in the column 'id', label in 'label', the images are in photos",)


def test_a_name_without_suffix_of_two_images_is_none(table, tmp_path):
    file = table("id,label", "a,cat", "b,dog")
    Image.new("RGB", (2, 2)).save(tmp_path / "b.jpg")
    (issue,) = read_data(file).issues
    assert (issue.kind, issue.what) == ("missing-file", f"{tmp_path}/b could be b.jpg or b.png")


def test_names_as_windows_writes_them_and_letters_that_look_alike_are_found(table, tmp_path):
    composed, apart = "caf\u00e9.png", "cafe\u0301.png"
    (tmp_path / "photos").mkdir()
    for place, name in (("photos", "a.png"), (".", composed), ("photos", apart)):
        Image.new("RGB", (2, 2)).save(tmp_path / place / name)
    file = table("image,label", "photos\\a.png,cat", f"{apart},dog", f"photos/{composed},cat", "b.png,dog")
    data = read_data(file)
    assert data.issues == []
    assert [item.image for item in data.splits["all"]] == [
        tmp_path / name for name in ("photos/a.png", composed, f"photos/{apart}", "b.png")
    ]


def test_the_suffix_that_a_name_lacks_may_be_in_capitals(table, tmp_path):
    file = table("id,label", "a,cat", "b,dog", "c,cat")
    (tmp_path / "a.png").rename(tmp_path / "a.PNG")
    (tmp_path / "b.png").rename(tmp_path / "b.JPG")
    assert {item.image.name for item in open_data(file).split("all")} == {"a.PNG", "b.JPG", "c.png"}
    (tmp_path / "b.jpg").hardlink_to(tmp_path / "b.JPG")  # as it is where capitals do not matter: one file
    assert len(open_data(file).split("all")) == 3
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    assert [issue.kind for issue in read_data(file).issues] == ["missing-file"]


def test_a_split_by_another_name_is_said(table):
    file = table("image,label,subset", "a.png,x,train", "b.png,y,test")
    assert open_data(file).notes == ("labels.csv: image in the column 'image', label in 'label', split in 'subset'",)


@pytest.mark.parametrize("name", ["annotations.csv", "train.tsv", "LIST.CSV"])
def test_the_only_table_beside_images_is_read_whatever_its_name(table, tmp_path, name):
    file = table("filename\tclass", "a.png\tcat", "b.png\tdog", name=name)
    for source in (tmp_path, file):
        assert open_data(source).source == str(file) and open_data(source).classes == ["cat", "dog"]
    assert unlabelled_items(tmp_path, 3) == []
    table("a,b", "1,2", name="other.csv")
    with pytest.raises(DataError, match="10 images and no labels") as error:
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


def test_single_labels_stay_whole_numbers(table):
    data = open_data(table("image,label", "a.png,cat", "b.png,dog"))
    assert not data.multi_label and {item.target for item in data.split("all")} == {0, 1}


# issues

FAULTY = {
    "a.png,": ("no-label", "has no label"),
    "a.png, ": ("no-label", "has no label"),
    "gone.png,cat": ("missing-file", "gone.png"),
    ",cat": ("missing-file", "names no image"),
    ".,cat": ("missing-file", "no file"),
    "a.png": ("bad-row", "1 cells for 2 columns"),
    "a, black.png,cat": ("bad-row", "quote what has commas in it"),
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


@pytest.mark.parametrize("split", ["tset", "", "train val"])
def test_an_unknown_split_is_an_issue(table, split):
    file = table("image,label,split", "j.png,cat,train", f"a.png,dog,{split}")
    (issue,) = read_data(file).issues
    assert (issue.kind, issue.path) == ("bad-split", f"{file}:3") and repr(split) in issue.what and "a.png" in issue.what


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


def test_the_line_of_an_issue_counts_lines_inside_quotes(table):
    file = table("image,label", 'a.png,"two', 'lines"', "gone.png,cat")
    assert [issue.path for issue in read_data(file).issues] == [f"{file}:4"]


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


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "cp1252"])
def test_a_table_in_another_encoding_is_refused(table, encoding):
    with pytest.raises(DataError, match="UTF-8"):
        open_data(table("image,label", "a.png,naïve", encoding=encoding))


def test_a_table_that_is_no_plain_file_or_too_large_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(LARGE + 1)  # takes no room
    for name, reason in (("pipe", "no regular"), ("zero", "no regular"), ("large", "more than")):
        with pytest.raises(DataError, match=reason):
            open_data(tmp_path / f"{name}.csv")
