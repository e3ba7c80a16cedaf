"""Copies of images in a folder for each label: names that are safe and different, complete or named as partial."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.errors import DiskFullError
from vitrail.tasks.classification.labels.sorting import LONGEST, folder_names, sorted_copies
from vitrail.weights.model_folder.classifier_output import Answer


def model(*labels: str, several: bool = False) -> SimpleNamespace:
    return SimpleNamespace(labels=list(labels), may_tell_none=several)


def answers(folder: Path, told: dict[str, list[str]]) -> list[tuple[Path, Answer]]:
    """Files of some names, each with its name as its content, and what each is told to show."""
    for name in told:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return [(folder / name, Answer([], [(label, 0.9) for label in labels])) for name, labels in told.items()]


def found(folder: Path) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*") if file.is_file()}


def sort(out, model, answered):
    with sorted_copies(out, model, [file for file, _ in answered]) as copy:
        for each in answered:
            copy(each)


def test_images_are_copied_to_their_labels_and_stay_where_they_were(tmp_path, capsys):
    given = answers(tmp_path / "in", {"a/1.png": ["ant"], "b/1.png": ["ant"], "b/1.PNG": ["ant"], "2.png": ["bee"]})
    sort(tmp_path / "out", model("bee", "ant", "cat"), given)
    assert found(tmp_path / "out") == {
        "ant/1.png": "a/1.png",
        "ant/1 (2).png": "b/1.png",
        "ant/1 (3).PNG": "b/1.PNG",
        "bee/2.png": "2.png",
    }
    assert all(file.exists() for file, _ in given) and capsys.readouterr().err.endswith("out: 3 ant, 1 bee\n")


def test_an_image_of_several_labels_is_copied_to_each_and_one_of_none_to_none(tmp_path):
    given = answers(tmp_path / "in", {"1.png": ["ant", "none"], "2.png": []})
    sort(tmp_path / "out", model("ant", "none", several=True), given)
    assert found(tmp_path / "out") == {"ant/1.png": "1.png", "none (2)/1.png": "1.png", "none/2.png": "2.png"}


@pytest.mark.parametrize(("failing", "left"), [("1.png", {}), ("2.png", {"ant/1.png": "1.png"})])
def test_a_copy_that_fails_leaves_the_whole_ones_under_a_name_that_says_so(tmp_path, monkeypatch, capsys, failing, left):
    given = answers(tmp_path / "in", {"1.png": ["ant"], "2.png": ["ant"]})
    copy = shutil.copy2

    def fail(file, to):
        copy(file, to)
        if file.name == failing:
            raise OSError("the disk is gone")

    monkeypatch.setattr(shutil, "copy2", fail)
    with pytest.raises(OSError, match="gone"):
        sort(tmp_path / "out", model("ant"), given)
    assert not (tmp_path / "out").exists() and found(tmp_path / "out.partial") == left
    assert (tmp_path / "out.partial").exists() == bool(left)
    assert ("1 ant in " in capsys.readouterr().err) == bool(left)


def test_a_disk_without_room_for_a_copy_of_each_is_refused_before_any_is_made(tmp_path, monkeypatch):
    given = answers(tmp_path / "in", {"1.png": ["ant"]})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(DiskFullError, match="10 are free"):
        sort(tmp_path / "out", model("ant"), given)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@given(
    st.lists(
        st.text() | st.sampled_from(["..", ".", "", "/", "a/b", "../a", "A", "a", "con", "x" * 300, "é" * 200, "a."]), unique=True
    )
)
def test_labels_of_any_kind_are_names_of_different_folders_in_one_place(labels):
    names = list(folder_names(labels, taken=["none"]).values())
    for name in names:
        assert name not in ("", ".", "..") and not name.startswith(".") and not set(name) & set('/\\:*?"<>|\0\n')
        assert Path("out", name).parent == Path("out") and len(name.encode()) <= LONGEST + 10
    assert len({name.casefold() for name in [*names, "none"]}) == len(labels) + 1


def test_labels_that_can_be_names_are_kept():
    labels = ["tabby cat", "St. Bernard", "crane (517)", "été", "0007", "jack-o'-lantern"]
    assert folder_names(labels) == {label: label for label in labels}
    assert list(folder_names(["a/b", "a:b", "..", ""]).values()) == ["a_b", "a_b (2)", "_", "_ (2)"]
