"""Folders as people have them: what would train on a wrong reading is refused, with the right one; the rest is counted."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from data.folders import fill, flat
from vitrail.data.checks.check import check_data
from vitrail.data.readers.sources import open_data
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.errors import DataError


def refused(folder: Path) -> DataError:
    """The error, which opening and checking share."""
    with pytest.raises(DataError) as opened:
        open_data(folder)
    with pytest.raises(DataError) as checked:
        check_data(folder)
    assert str(opened.value) == str(checked.value) and opened.value.exit_code == 3
    return opened.value


@pytest.fixture
def written(monkeypatch, tmp_path) -> Callable[[str], None]:
    """``written(hint)`` runs the first command of a hint in the shell."""
    monkeypatch.chdir(tmp_path)

    def run(hint: str) -> None:
        command = hint[hint.index("printf") :].split(";")[0].removesuffix(".")
        subprocess.run(command, shell=True, check=True)

    return run


# one folder too deep


@pytest.mark.parametrize("way", ["photos", "my photos/2024"])
def test_a_folder_one_level_too_deep_is_refused_with_the_right_one(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    flat(tmp_path / "data" / way, ants=4, bees=4)
    error = refused(Path("data"))
    assert "one folder too deep" in error.what and "'ants' and 'bees'" in error.what
    assert f"did you mean --data {shlex.quote(f'data/{way}')}?" in error.hint
    assert open_data(f"data/{way}").classes == ["ants", "bees"]


def test_one_class_with_folders_of_its_own_says_so_in_a_file(tmp_path, written):
    flat(tmp_path / "cats", indoors=3, outdoors=3)
    written(refused(tmp_path).hint)
    assert open_data(tmp_path).classes == ["cats"] and len(open_data(tmp_path).split("all")) == 6


# the same class folders under several parents


def batches(root: Path) -> Path:
    for batch in ("batch1", "batch2"):
        flat(root / batch, ants=4, bees=4)
    return root


def test_the_same_classes_under_several_parents_are_refused_with_both_readings(tmp_path):
    error = refused(batches(tmp_path))
    assert "'batch1' and 'batch2'" in error.what and "'ants' and 'bees'" in error.what
    assert "did you mean 'ants' and 'bees'?" in error.hint and "classes.txt" in error.hint


def test_batches_are_put_together_by_a_file_that_names_the_classes(tmp_path, written):
    written(refused(batches(tmp_path)).hint)
    data = open_data(tmp_path)
    assert data.classes == ["ants", "bees"] and data.notes == ()
    assert {item.name for item in data.split("all") if item.target == 0} == {
        f"{batch}/ants/{i}.png" for batch in ("batch1", "batch2") for i in range(4)
    }


@pytest.mark.parametrize("content", ["ants\n", "ants\nbees\nwasps\n", ""])
def test_a_file_that_names_other_classes_settles_nothing(tmp_path, content):
    (batches(tmp_path) / "classes.txt").write_text(content)
    assert "names neither" in refused(tmp_path).what


def test_batches_within_splits_and_deeper_ones_are_refused_and_put_together(tmp_path):
    for split in ("train", "val"):
        batches(tmp_path / "a" / split)
        for batch in ("batch1", "batch2"):
            flat(tmp_path / "b" / split / batch / "images", ants=4, bees=4)
    for root in (tmp_path / "a", tmp_path / "b"):
        refused(root)
        (root / "classes.txt").write_text("ants\nbees\n")
        data = open_data(root)
        assert data.classes == ["ants", "bees"] and {s: data.counts(s) for s in ("train", "val")} == {
            "train": [8, 8], "val": [8, 8],
        }  # fmt: skip


def test_a_folder_of_a_split_in_one_is_looked_through(tmp_path):
    for split in ("training_set", "test_set"):
        flat(tmp_path / split / split, ants=4, bees=4)
    data = open_data(tmp_path)
    assert data.classes == ["ants", "bees"] and len(data.splits["test"]) == 8


def test_folders_that_may_be_splits_are_proposed_as_such_and_never_as_one(tmp_path):
    for split in ("seg_train", "seg_test"):
        flat(tmp_path / split, ants=4, bees=4)
    error = refused(tmp_path)
    assert "seg_train to train" in error.hint and "ants" not in error.hint


@pytest.mark.parametrize("parts", [("train", "test"), ("train",), ("Train", "valid")])
def test_splits_without_folders_of_classes_are_no_classes(tmp_path, parts):
    for part in parts:
        fill(tmp_path / part, 4)
    error = refused(tmp_path)
    assert "no class folders" in error.what and "CLASS/image.jpg" in error.hint
    (tmp_path / "classes.txt").write_text("\n".join(parts))
    assert set(open_data(tmp_path).classes) == set(parts)


def test_folders_within_classes_that_are_no_classes_are_read_as_ever(tmp_path):
    flat(tmp_path / "patients" / "sick", p1=3, p2=3)
    flat(tmp_path / "patients" / "well", p3=3, p4=3)
    flat(tmp_path / "some", cat=6, dog=6)
    for kind in ("cat", "dog"):
        flat(tmp_path / "some" / kind, close=1, far=1)
        fill(tmp_path / "images" / kind / "images", 3)
    assert open_data(tmp_path / "patients").classes == ["sick", "well"]
    assert open_data(tmp_path / "some").classes == open_data(tmp_path / "images").classes == ["cat", "dog"]


# names that are nearly the same


@pytest.mark.parametrize(
    "names", [("Ants", "ants"), ("ants", "ants "), ("black cat", "Black  Cat"), ("na\u00efve", "nai\u0308ve"), ("01", "1")]
)
def test_classes_that_differ_by_case_or_blanks_alone_are_refused(tmp_path, names):
    for name in (*names, "bees"):
        fill(tmp_path / name, 3)
    assert [issue.kind for issue in check_data(tmp_path).issues] == ["similar-classes"]
    with pytest.raises(DataError, match="capitals, blanks, leading zeros or invisible characters") as error:
        open_data(tmp_path)
    assert all(repr(name) in error.value.what for name in names)


# what systems leave behind, and what is left out

JUNK = ("__MACOSX", "@eaDir", ".ipynb_checkpoints", ".Trash-1000", "$RECYCLE.BIN")


@pytest.mark.parametrize("name", JUNK)
def test_folders_of_the_system_are_no_classes(tmp_path, name):
    flat(tmp_path, ants=3, bees=3)
    for place in (tmp_path, tmp_path / "ants"):
        fill(place / name, 3)
        fill(place / name / "ants", 3)
    data = open_data(tmp_path)
    assert data.classes == ["ants", "bees"] and len(data.split("all")) == 6
    assert data.notes == ("left out: 2 hidden or a system's own",)
    assert open_unlabelled(tmp_path).notes == data.notes and len(open_unlabelled(tmp_path).split("all")) == 6


def test_files_left_out_are_counted_by_suffix(tmp_path):
    flat(tmp_path, ants=3, bees=3, wasps=0)
    for name in ("ants/1.txt", "ants/2.TXT", "bees/film.mp3", "bees/README", "3.txt"):
        (tmp_path / name).write_bytes(b"x")
    fill(tmp_path, 1)
    assert open_data(tmp_path).notes == (
        "left out: 3 .txt, 1 .mp3, 1 file without a suffix, 1 folder without images, 1 image outside the class folders",
    )
    assert open_unlabelled(tmp_path).notes == ("left out: 3 .txt, 1 .mp3, 1 file without a suffix",)


def test_many_kinds_of_files_are_summed_up(tmp_path):
    flat(tmp_path, ants=3, bees=3)
    for number in range(45):
        (tmp_path / f"x.{number}").write_bytes(b"x")
    assert open_data(tmp_path).notes[0].endswith("1 .39, 5 more of 5 kinds")


def test_classes_called_test_1_and_test_2_are_classes(tmp_path):
    flat(tmp_path, **{"Test 1": 3, "Test 2": 3})
    assert open_data(tmp_path).classes == ["Test 1", "Test 2"]


def test_the_file_of_classes_names_folders_however_their_accents_are_written(tmp_path):
    for outer in ("A\u0308pfel", "Birnen"):
        for inner in ("fern", "nah"):
            (tmp_path / outer / inner).mkdir(parents=True)
            fill(tmp_path / outer / inner, 3)
    (tmp_path / "classes.txt").write_text("A\u0308pfel\nBirnen\n")
    assert open_data(tmp_path).classes == ["A\u0308pfel", "Birnen"]
