"""Folders become classes and splits."""

import errno
import os
from pathlib import Path

import pytest
from PIL import Image

from data.folders import fill, flat, run_in
from vitrail.data.readers.sources import open_data, read_data
from vitrail.errors import DataError


def names(data, split: str) -> set[str]:
    return {item.name for item in data.splits[split]}


def test_classes_and_images_sort_naturally(tmp_path):
    for name in ("10", "2", "1", "class 12", "class 3"):
        fill(tmp_path / name, 12)
    data = open_data(tmp_path)
    assert data.classes == ["1", "2", "10", "class 3", "class 12"]
    assert [name for name in data.assignment if name.startswith("1/")] == [f"1/{i}.png" for i in range(12)]


def test_a_class_whose_name_is_in_no_encoding_is_refused_and_images_may_be_called_so(tmp_path):
    flat(tmp_path, cat=3, dog=3)
    (tmp_path / "cat" / "0.png").rename(tmp_path / "cat" / "g\udcff.png")
    assert "cat/g\udcff.png" in open_data(tmp_path).assignment
    (tmp_path / "dog").rename(tmp_path / "d\udcff")
    with pytest.raises(DataError, match=r"'d\\udcff' is not in UTF-8"):
        open_data(tmp_path)
    assert [issue.kind for issue in read_data(tmp_path).issues] == ["bad-name"]


def test_hidden_files_hidden_folders_and_other_files_are_ignored(tmp_path):
    flat(tmp_path, cat=3, dog=3)
    fill(tmp_path / ".git", 2)
    fill(tmp_path / "cat" / ".thumbs", 2)
    fill(tmp_path / "empty", 0)
    (tmp_path / "dog" / ".hidden.png").write_bytes((tmp_path / "dog" / "0.png").read_bytes())
    (tmp_path / "dog" / "notes.txt").write_text("no picture")
    (tmp_path / "dog" / "folder.png").mkdir()
    (tmp_path / "README.md").write_text("no picture")
    data = open_data(tmp_path)
    assert data.classes == ["cat", "dog"]
    assert names(data, "train") | names(data, "val") | names(data, "test") == {
        f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)
    }


def test_symbolic_links_are_followed_to_images_but_not_in_circles(tmp_path):
    store = fill(tmp_path / "store", 3)
    root = flat(tmp_path / "data", cat=2)
    (root / "dog").symlink_to(store)
    (root / "cat" / "linked.png").symlink_to(store / "0.png")
    (root / "cat" / "up").symlink_to(root)
    (root / "cat" / "self.png").symlink_to("self.png")
    (root / "cat" / "gone.png").symlink_to("nowhere.png")
    data = open_data(root)
    assert {i.name for i in data.split("all")} == {
        "cat/0.png", "cat/1.png", "cat/linked.png", "dog/0.png", "dog/1.png", "dog/2.png",
    }  # fmt: skip
    assert data.notes == ("left out: 2 broken links, 1 linked folder",)


@pytest.mark.parametrize(
    "called",
    ["train val test", "train valid test", "Training Validation Testing", "train_set dev hold-out", "train2017 eval test1"],
)
def test_split_folders_are_taken_as_they_are(tmp_path, called):
    validation = called.split()[1]
    for split, count in zip(called.split(), (4, 2, 3), strict=True):
        flat(tmp_path / split, cat=count, dog=count)
    fill(tmp_path / "extras" / "cat")
    data = open_data(tmp_path)
    assert data.classes == ["cat", "dog"] and data.assignment is None
    assert {s: data.counts(s) for s in data.splits} == {"train": [4, 4], "val": [2, 2], "test": [3, 3]}
    assert names(data, "val") == {f"{validation}/{c}/{i}.png" for c in ("cat", "dog") for i in range(2)}
    assert data.evaluation_split == "test"


def test_a_training_split_alone_gives_a_stratified_tenth_to_validation(tmp_path):
    flat(tmp_path / "train", cat=40, dog=20)
    data = open_data(tmp_path)
    assert {s: data.counts(s) for s in data.splits} == {"train": [36, 18], "val": [4, 2], "test": [0, 0]}
    assert data.evaluation_split == "val" and set(data.assignment.values()) == {"train", "val"}


def test_validation_and_test_alone_are_a_data_set_without_training(tmp_path):
    for split in ("val", "test"):
        flat(tmp_path / split, cat=2, dog=2)
    data = open_data(tmp_path)
    assert {s: len(items) for s, items in data.splits.items()} == {"train": 0, "val": 4, "test": 4}
    with pytest.raises(DataError, match=r"'train'[\s\S]*val, test, all"):
        data.split("train")
    assert len(data.split("all")) == 8


@pytest.mark.parametrize("name", ["test", "val", "train"])
def test_a_flat_folder_may_have_a_class_called_like_a_split(tmp_path, name):
    data = open_data(flat(tmp_path, bus=4, car=4, **{name: 4}))
    assert data.classes == sorted(["bus", "car", name]) and len(data.split("all")) == 12


# what is no image of a class


def pairs(issues, root: Path) -> set[tuple[str, str]]:
    return {(issue.kind, Path(issue.path).relative_to(root).as_posix()) for issue in issues}


def test_what_lies_about_in_a_flat_folder_is_told(tmp_path):
    flat(tmp_path, cat=2, dog=2, ghost=0)
    fill(tmp_path, 1)
    (tmp_path / "README.md").write_text("text")
    (tmp_path / "cat" / "more").mkdir()
    (tmp_path / "cat" / "more" / "x.txt").write_bytes(b"x")
    (tmp_path / "cat" / "gone.png").symlink_to("nowhere.png")
    contents = read_data(tmp_path)
    assert pairs(contents.warnings, tmp_path) == {("no-class", "0.png"), ("empty-class", "ghost"), ("unreadable", "cat/gone.png")}
    assert pairs(contents.ignored, tmp_path) == {("ignored", "README.md"), ("ignored", "cat/more/x.txt")}
    assert contents.issues == [] and contents.classes == ["cat", "dog"]
    assert open_data(tmp_path).classes == ["cat", "dog"]


def test_what_lies_about_among_splits_is_told(tmp_path):
    flat(tmp_path / "train", cat=2, dog=2, ghost=0)
    flat(tmp_path / "valid", cat=2, dog=0)
    fill(tmp_path / "test", 2)  # not sorted into classes
    fill(tmp_path / "train", 1)
    fill(tmp_path, 1)
    fill(tmp_path / "extras" / "cat", 3)
    fill(tmp_path / "drafts", 3)
    contents = read_data(tmp_path)
    assert pairs(contents.warnings, tmp_path) == {
        ("no-class", "0.png"), ("no-class", "train/0.png"), ("no-class", "test/0.png"), ("no-class", "test/1.png"),
        ("empty-class", "train/ghost"),
    }  # fmt: skip
    assert pairs(contents.ignored, tmp_path) == {("no-split", "extras"), ("no-split", "drafts"), ("no-split", "test")}
    assert {split: len(items) for split, items in contents.splits.items()} == {"train": 4, "val": 2}


def test_a_table_stands_for_class_folders_that_are_not_there(tmp_path):
    fill(tmp_path / "images", 3)
    (tmp_path / "labels.csv").write_text("image,label\nimages/0.png,cat\nimages/1.png,dog\n")
    data = open_data(tmp_path)
    assert data.source == str(tmp_path / "labels.csv") and data.classes == ["cat", "dog"]
    fill(tmp_path / "train", 1)
    fill(tmp_path / "test", 1)
    assert open_data(tmp_path).classes == ["cat", "dog"]


def test_class_folders_come_before_a_table(tmp_path):
    (tmp_path / "labels.csv").write_text("image,label\n0.png,x\n")
    flat(tmp_path, ant=1, bee=1)
    contents = read_data(tmp_path)
    assert contents.classes == ["ant", "bee"] and pairs(contents.ignored, tmp_path) == {("ignored", "labels.csv")}
    flat(tmp_path / "sorted" / "train", cat=1)
    (tmp_path / "sorted" / "labels.csv").write_text("image,label\n0.png,x\n")
    assert read_data(tmp_path / "sorted").classes == ["cat"]


def test_a_table_that_says_otherwise_of_the_images_in_the_folders_is_refused(tmp_path):
    for part in ("part1", "part2"):
        (tmp_path / part).mkdir()
        for name in ("a", "b"):
            Image.new("RGB", (4, 4)).save(tmp_path / part / f"{name}.png")
    table = tmp_path / "labels.csv"
    rows = [f"part{part}/{name}.png,{label}" for part in (1, 2) for name, label in (("a", "cat"), ("b", "dog"))]
    table.write_text("\n".join(["image,label", *rows]))
    with pytest.raises(DataError, match=r"part1/a\.png as 'cat', but it is in the folder 'part1'") as refused:
        read_data(tmp_path)
    assert f"give --data {table}" in str(refused.value.hint)
    assert read_data(table).classes == ["cat", "dog"]
    table.write_text("\n".join(["image,label", *(f"part{n}/a.png,part{n}" for n in (1, 2))]))  # says the same
    assert read_data(tmp_path).classes == ["part1", "part2"]


# runs among the images


def test_a_run_in_the_folder_of_a_class_leaves_the_class_as_it_is(tmp_path):
    flat(tmp_path, cat=3, dog=3)
    before = open_data(tmp_path)
    run_in(tmp_path / "cat" / "first")
    after = open_data(tmp_path)
    assert after.classes == before.classes and after.splits == before.splits
    assert after.notes == ("left out: 1 run",)


def test_runs_and_folders_of_runs_are_no_classes_and_each_run_is_counted(tmp_path):
    flat(tmp_path, cat=3, dog=3)
    for name in ("first", "runs/second", "runs/third", "runs/fourth", "dog/deep/fifth"):
        run_in(tmp_path / name)
    (tmp_path / "runs" / "notes.txt").write_text("no image")
    data = open_data(tmp_path)
    assert data.classes == ["cat", "dog"] and len(data.split("all")) == 6
    assert data.notes == ("left out: 5 runs",)
    assert pairs(read_data(tmp_path).ignored, tmp_path) == {
        ("run", "first"), ("run", "runs/second"), ("run", "runs/third"), ("run", "runs/fourth"), ("run", "dog/deep/fifth"),
    }  # fmt: skip


# links to folders


def test_links_to_folders_are_followed_as_classes_and_splits_and_counted_where_they_are_deeper(tmp_path):
    store = flat(tmp_path / "store", cat=2, dog=2)
    root = flat(tmp_path / "data" / "train", cat=1).parent
    (root / "train" / "dog").symlink_to(store / "dog")
    (root / "val").symlink_to(store)
    (root / "train" / "cat" / "more").symlink_to(store / "cat")
    data = open_data(root)
    assert {split: data.counts(split) for split in data.splits} == {"train": [1, 2], "val": [2, 2], "test": [0, 0]}
    assert data.notes == ("left out: 1 linked folder",)


@pytest.mark.parametrize("right", ["list", "enter"])
@pytest.mark.parametrize("place", [".", "cat", "cat/more/deep", "train", "train/cat"])
def test_a_folder_that_cannot_be_read_is_refused_by_its_name(place, right, tmp_path, monkeypatch):
    flat(tmp_path / "train" if place.startswith("train") else tmp_path, cat=12, dog=12)
    fill(tmp_path / place / "below", 2)
    close(tmp_path / place, right, monkeypatch)
    with pytest.raises(DataError, match="a folder cannot be read: Permission denied") as error:
        open_data(tmp_path)
    assert error.value.where == str(tmp_path / place)


def close(folder: Path, right: str, monkeypatch) -> None:
    """Take from this process, which may be allowed everything, the right to list a folder or to enter it."""

    def denied(function):
        def called(path=".", **options):
            place = os.fspath(path) if isinstance(path, str | Path) else ""
            if place.startswith(f"{folder}{os.sep}") if right == "enter" else place == str(folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
            return function(path, **options)

        return called

    for name in ("stat", "lstat") if right == "enter" else ("listdir", "scandir"):
        monkeypatch.setattr(os, name, denied(getattr(os, name)))
