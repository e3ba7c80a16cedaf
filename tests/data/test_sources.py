"""Folders and the digits become classes and splits, always the same ones."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from vitrail.data.sources import deal, image_files, match_classes, natural_key, open_data
from vitrail.errors import ConfigError, DataError

SHARES = {"test": 0.2, "val": 0.1}


def fill(folder: Path, count: int = 1, suffix: str = ".png") -> Path:
    """A folder with ``count`` small images."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("RGB", (2, 2)).save(folder / f"{number}{suffix}")
    return folder


def flat(folder: Path, **counts: int) -> Path:
    for name, count in counts.items():
        fill(folder / name, count)
    return folder


def names(data, split: str) -> set[str]:
    return {item.name for item in data.splits[split]}


def table(sizes: list[int], shares: dict[str, float], seed: int) -> dict[str, list[int]]:
    """Images of every class in every split."""
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    dealt = deal([str(i) for i in range(len(labels))], labels, shares, seed)
    assert list(dealt) == [str(i) for i in range(len(labels))]
    counts = Counter((split, labels[int(name)]) for name, split in dealt.items())
    return {split: [counts[split, label] for label in range(len(sizes))] for split in (*shares, "train")}


# -- order and names


def test_numbers_sort_by_value_inside_names_too():
    names = ["a10b11", "10b", "b", "a10", "2", "a10b2", "10", "a2"]
    assert sorted(names, key=natural_key) == ["2", "10", "10b", "a2", "a10", "a10b2", "a10b11", "b"]


@given(st.lists(st.text(min_size=1, max_size=6)))
def test_any_names_can_be_sorted(words):
    backwards = words[::-1]
    assert sorted(words, key=natural_key) == sorted(backwards, key=natural_key)


def test_classes_and_images_sort_naturally(tmp_path):
    for name in ("10", "2", "1", "class 12", "class 3"):
        fill(tmp_path / name, 12)
    data = open_data(tmp_path)
    assert data.classes == ["1", "2", "10", "class 3", "class 12"]
    assert [name for name in data.assignment if name.startswith("1/")] == [f"1/{i}.png" for i in range(12)]


def test_unicode_and_spaces_in_names_are_kept(tmp_path):
    for name in ("고양이", "חתול שחור", "sad cat", "naïve [1]"):
        fill(tmp_path / name, 10)
    assert sorted(open_data(tmp_path).classes) == sorted(["고양이", "חתול שחור", "sad cat", "naïve [1]"])


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


def test_images_below_a_class_belong_to_it_and_suffixes_may_shout(tmp_path):
    flat(tmp_path, cat=1, dog=1)
    fill(tmp_path / "cat" / "indoors" / "2024", 2, ".JPG")
    fill(tmp_path / "dog" / "x", 1, ".WebP")
    data = open_data(tmp_path)
    assert {i.name: i.label for i in data.split("all")} == {
        "cat/0.png": 0, "cat/indoors/2024/0.JPG": 0, "cat/indoors/2024/1.JPG": 0, "dog/0.png": 1, "dog/x/0.WebP": 1,
    }  # fmt: skip


def test_symbolic_links_are_followed_to_images_but_not_in_circles(tmp_path):
    store = fill(tmp_path / "store", 3)
    root = flat(tmp_path / "data", cat=2)
    (root / "dog").symlink_to(store)
    (root / "cat" / "linked.png").symlink_to(store / "0.png")
    (root / "cat" / "up").symlink_to(root)
    (root / "cat" / "self.png").symlink_to("self.png")
    (root / "cat" / "gone.png").symlink_to("nowhere.png")
    assert {i.name for i in open_data(root).split("all")} == {
        "cat/0.png", "cat/1.png", "cat/linked.png", "dog/0.png", "dog/1.png", "dog/2.png",
    }  # fmt: skip


# -- splits


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "Valid"])
def test_split_folders_are_taken_as_they_are(tmp_path, validation):
    for split, count in (("train", 4), (validation, 2), ("test", 3)):
        flat(tmp_path / split, cat=count, dog=count)
    fill(tmp_path / "extras" / "cat")
    data = open_data(tmp_path)
    assert data.classes == ["cat", "dog"] and data.assignment is None
    assert {s: data.counts(s) for s in data.splits} == {"train": [4, 4], "val": [2, 2], "test": [3, 3]}
    assert names(data, "val") == {f"{validation}/{c}/{i}.png" for c in ("cat", "dog") for i in range(2)}
    assert data.evaluation_split == "test"


def test_a_class_that_only_one_split_has_is_a_class(tmp_path):
    flat(tmp_path / "train", cat=4, dog=4)
    flat(tmp_path / "val", ant=1, cat=1)
    data = open_data(tmp_path)
    assert data.classes == ["ant", "cat", "dog"]
    assert {i.name: i.label for i in data.splits["val"]} == {"val/ant/0.png": 0, "val/cat/0.png": 1}


def test_a_training_split_alone_gives_a_stratified_tenth_to_validation(tmp_path):
    flat(tmp_path / "train", cat=40, dog=20)
    data = open_data(tmp_path)
    assert {s: data.counts(s) for s in data.splits} == {"train": [36, 18], "val": [4, 2], "test": [0, 0]}
    assert data.evaluation_split == "val" and set(data.assignment.values()) == {"train", "val"}


def test_a_test_split_is_never_dealt_from(tmp_path):
    flat(tmp_path / "train", cat=20, dog=20)
    flat(tmp_path / "test", cat=3, dog=3)
    data = open_data(tmp_path)
    assert names(data, "test") == {f"test/{c}/{i}.png" for c in ("cat", "dog") for i in range(3)}
    assert len(data.splits["val"]) == 4 and all(name.startswith("train/") for name in data.assignment)


def test_validation_and_test_alone_are_a_data_set_without_training(tmp_path):
    for split in ("val", "test"):
        flat(tmp_path / split, cat=2, dog=2)
    data = open_data(tmp_path)
    assert {s: len(items) for s, items in data.splits.items()} == {"train": 0, "val": 4, "test": 4}
    with pytest.raises(DataError, match=r"'train'[\s\S]*val, test, all"):
        data.split("train")
    assert len(data.split("all")) == 8


def test_a_flat_folder_is_dealt_seventy_ten_twenty(tmp_path):
    data = open_data(flat(tmp_path, cat=50, dog=30))
    assert {s: data.counts(s) for s in data.splits} == {"train": [35, 21], "val": [5, 3], "test": [10, 6]}


@pytest.mark.parametrize("name", ["test", "val", "train"])
def test_a_flat_folder_may_have_a_class_called_like_a_split(tmp_path, name):
    data = open_data(flat(tmp_path, bus=4, car=4, **{name: 4}))
    assert data.classes == sorted(["bus", "car", name]) and len(data.split("all")) == 12


def test_the_same_seed_deals_alike_and_another_differently(tmp_path):
    flat(tmp_path, cat=30, dog=30)
    first = open_data(tmp_path, split_seed=1)
    assert first.assignment == open_data(tmp_path, split_seed=1).assignment
    assert names(first, "test") != names(open_data(tmp_path, split_seed=2), "test")


def test_an_earlier_deal_is_repeated_and_new_images_stay_out(tmp_path):
    flat(tmp_path, cat=20, dog=20)
    first = open_data(tmp_path, split_seed=5)
    fill(tmp_path / "cat", 25)
    again = open_data(tmp_path, split_seed=6, assignment=first.assignment)
    assert all(names(again, s) == names(first, s) for s in first.splits)
    only_train = flat(tmp_path / "other" / "train", cat=20, dog=20).parent
    first = open_data(only_train)
    assert open_data(only_train, split_seed=9, assignment=first.assignment).assignment == first.assignment


SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any)


@given(SIZES, st.sampled_from([SHARES, {"val": 0.1}]), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_every_class_gives_each_split_its_share_to_within_one_image(sizes, shares, seed):
    dealt = table(sizes, shares, seed)
    assert [sum(column) for column in zip(*dealt.values(), strict=True)] == sizes
    for split, share in shares.items():
        for count, size in zip(dealt[split], sizes, strict=True):
            assert abs(count - share * size) <= 1 + 1e-9, (split, dealt)


@given(SIZES, st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_every_class_has_training_images(sizes, seed):
    dealt = table(sizes, SHARES, seed)
    assert all(count > 0 for count, size in zip(dealt["train"], sizes, strict=True) if size), dealt


def test_a_large_class_among_many_small_ones_gives_its_own_share():
    dealt = table([100, *[1] * 90], SHARES, 0)
    assert abs(dealt["test"][0] - 20) <= 1 and abs(dealt["val"][0] - 10) <= 1


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_balanced_classes_meet_the_shares_of_the_whole(size, classes, seed):
    dealt = table([10 * size] * classes, SHARES, seed)
    assert dealt == {"test": [2 * size] * classes, "val": [size] * classes, "train": [7 * size] * classes}


# -- the digits


def test_the_digits_are_those_of_scikit_learn():
    data, bunch = open_data("digits"), load_digits()
    assert data.classes == [str(d) for d in range(10)]
    items = sorted(data.split("all"), key=lambda item: item.name)
    assert len(items) == 1797 and [item.label for item in items] == bunch.target.tolist()
    for item, sheet in zip(items[::50], bunch.images[::50], strict=True):
        np.testing.assert_allclose(np.asarray(item.image), sheet * 255 / 16, atol=0.5)
        assert item.image.mode == "L"


def test_the_digits_have_one_split_for_all_time():
    data = open_data("digits")
    assert {s: len(items) for s, items in data.splits.items()} == {"train": 1257, "val": 180, "test": 360}
    assert data.assignment == open_data("digits", split_seed=7).assignment
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


@pytest.mark.parametrize("source", ["", "~no-such-user/data", "x" * 300, "nul\0byte"], ids=["empty", "user", "long", "nul"])
def test_a_path_that_cannot_be_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError):
        open_data(source)


def test_a_split_that_is_not_there_names_those_that_are():
    with pytest.raises(DataError, match=r"'nope'[\s\S]*train, val, test, all"):
        open_data("digits").split("nope")


# -- the classes of other data


def test_classes_match_labels_by_name_in_any_order():
    assert match_classes(["dog", "cat"], ["ant", "cat", "dog"], where="data") == [2, 1]


def test_whole_numbers_are_indices_of_named_labels():
    assert match_classes(["0002", "0", "1"], ["ant", "cat", "dog"], where="data") == [2, 0, 1]


def test_a_number_that_is_a_label_is_a_name_and_no_index():
    assert match_classes(["7", "3"], ["3", "5", "7"], where="data") == [2, 0]
    with pytest.raises(DataError):
        match_classes(["1"], ["3", "5", "7"], where="data")


def test_a_number_with_zeros_before_it_is_the_same_label():
    assert match_classes(["0007", "0000"], [str(d) for d in range(10)], where="data") == [7, 0]


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (["bird", "cat"], ["cat", "dog"]),  # as many as labels: a guess by position would pass
        (["0003"], ["ant", "cat", "dog"]),
        (["-1"], ["ant", "cat"]),
        (["Cat"], ["cat", "dog"]),
        (["²"], ["ant", "cat", "dog"]),
        (["1.0"], ["ant", "cat"]),
    ],
)
def test_strangers_are_refused_with_both_sides_listed(classes, labels):
    with pytest.raises(DataError) as error:
        match_classes(classes, labels, where="photos")
    assert all(repr(label) in str(error.value) for label in labels)
    assert any(repr(name) in str(error.value) for name in classes) and "photos" in str(error.value)


def test_long_lists_of_strangers_are_cut():
    with pytest.raises(DataError, match="and 88 more"):
        match_classes([f"stranger {i}" for i in range(100)], ["cat"], where="photos")


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


def test_no_path_at_all_is_wrong_usage():
    with pytest.raises(ConfigError):
        image_files([])
