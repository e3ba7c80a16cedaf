"""Folders and the digits become classes and splits, always the same ones."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from data.folders import fill, flat
from vitrail.data.readers.sources import image_files, open_data
from vitrail.errors import DataError

# -- the digits


def test_the_digits_are_those_of_scikit_learn():
    data, bunch = open_data("digits"), load_digits()
    assert data.classes == [str(d) for d in range(10)]
    items = sorted(data.split("all"), key=lambda item: item.name)
    assert len(items) == 1797 and [item.target for item in items] == bunch.target.tolist()
    for item, sheet in zip(items[::50], bunch.images[::50], strict=True):
        np.testing.assert_allclose(np.asarray(item.image), sheet * 255 / 16, atol=0.5)
        assert item.image.mode == "L"


def test_the_digits_have_one_split_for_all_time():
    data = open_data("digits")
    assert {s: len(items) for s, items in data.splits.items()} == {"train": 1257, "val": 180, "test": 360}
    assert data.assignment == open_data("digits", split_seed=7).assignment and data.has_splits
    for label, count in enumerate(data.counts("test")):
        assert abs(count - 0.2 * Counter(load_digits().target.tolist())[label]) <= 1


# -- nothing there


def test_what_is_no_data_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.png").write_bytes(b"x")
    fill(tmp_path / "unsorted", 3)
    (tmp_path / "bare" / "train").mkdir(parents=True)
    flat(tmp_path / "void", cat=0, dog=0)
    for name in ("missing", "empty", "file.png", "unsorted", "bare", "void"):
        with pytest.raises(DataError) as error:
            open_data(tmp_path / name)
        assert error.value.exit_code == 3 and error.value.hint and error.value.where


def test_a_split_that_is_not_there_names_those_that_are():
    with pytest.raises(DataError, match=r"'nope'[\s\S]*train, val, test, all"):
        open_data("digits").split("nope")


# -- images to predict


def test_image_files_takes_files_folders_and_globs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(Path("photos"), 11)
    fill(Path("photos/more"), 1, ".JPG")
    Path("photos/.hidden.png").write_bytes(b"x")
    Path("photos/notes.txt").write_text("x")
    folder = [Path(f"photos/{i}.png") for i in range(11)]
    assert image_files(["photos/3.png"]) == [Path("photos/3.png")]
    assert image_files(["photos"]) == [*folder, Path("photos/more/0.JPG")]
    assert set(image_files(["photos/*.png"])) == set(folder)
    assert set(image_files(["**/*.JPG"])) == {Path("photos/more/0.JPG")}
    assert image_files(["photos/notes.txt"]) == [Path("photos/notes.txt")]  # as given; reading it is refused later


def test_image_files_takes_each_image_once_and_keeps_the_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(Path("a"), 2)
    assert image_files(["a/1.png", "a", "./a/0.png", "a/*.png"]) == [Path("a/1.png"), Path("a/0.png")]
    assert len(image_files(["a/1.png", "a/../a/1.png", str(tmp_path / "a" / "1.png")])) == 1


def test_a_name_with_the_signs_of_a_glob_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (1, 1)).save("cat[1].png")
    assert image_files(["cat[1].png"]) == [Path("cat[1].png")]


@pytest.mark.parametrize("path", ["missing.jpg", "*.jpg", "empty", "x" * 300, "nul\0byte"], ids=lambda p: p[:11].strip("\0"))
def test_a_path_that_names_no_image_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(DataError) as error:
        image_files([path])
    assert error.value.hint
