"""Files and folders appear whole or not at all."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from vitrail import errors
from vitrail.errors import ConfigError
from vitrail.files import room_for, whole_folder, write_bytes, write_json, write_text
from vitrail.runtime.output import require_free
from vitrail.weights.formats.tensor_files import write_tensors


class DiskFullError(OSError):
    pass


def test_text_bytes_and_json_are_written_as_given(tmp_path):
    write_text(tmp_path / "a.txt", "é\nü 猫\n")
    write_bytes(tmp_path / "b", b"\r\n\0")
    write_json(tmp_path / "c.json", {"name": "猫", "values": [1, 2.5, None]})
    assert (tmp_path / "a.txt").read_bytes() == "é\nü 猫\n".encode()
    assert (tmp_path / "b").read_bytes() == b"\r\n\0"
    text = (tmp_path / "c.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"name": "猫", "values": [1, 2.5, None]} and "猫" in text and text.endswith("}\n")


def test_a_write_that_stops_half_way_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    file, whole = tmp_path / "a.txt", Path.write_bytes
    write_text(file, "old")

    def half(path, content):
        whole(path, content[: len(content) // 2])
        raise DiskFullError

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(DiskFullError):
        write_text(file, "new and longer")
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == {"a.txt": "old"}


def test_a_folder_may_hold_what_is_read_only(tmp_path, monkeypatch):
    opened = os.open

    def unprivileged(path, flags, *rest, **more):
        if flags & (os.O_RDWR | os.O_WRONLY) and os.path.isfile(path) and not os.stat(path).st_mode & 0o200:
            raise PermissionError(path)
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", unprivileged)  # whoever tests may be allowed everything
    with whole_folder(tmp_path / "out") as draft:
        (draft / "a").write_text("a")
        (draft / "a").chmod(0o444)
    assert (tmp_path / "out" / "a").read_text() == "a"


def test_a_folder_appears_at_the_end_with_its_parents(tmp_path):
    folder = tmp_path / "a" / "b" / "model"
    with whole_folder(folder) as draft:
        (draft / "file").write_text("x")
        assert not folder.exists() and draft.parent == folder.parent and draft.name.startswith(".")
    assert (folder / "file").read_text() == "x" and list(folder.parent.iterdir()) == [folder]


def test_a_folder_that_may_not_be_replaced_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("mine")
    with pytest.raises(OSError), whole_folder(tmp_path / "model", replace=False) as draft:
        (draft / "file").write_text("yours")
    assert [p.name for p in tmp_path.iterdir()] == ["model"] and (tmp_path / "model" / "file").read_text() == "mine"


def test_all_of_a_folder_is_on_the_disk_before_it_takes_its_name_and_the_name_before_the_old_one_goes(tmp_path, monkeypatch):
    events, fsync, rename, rmtree = [], os.fsync, Path.rename, shutil.rmtree
    (tmp_path / "model").mkdir()

    def name_of(number: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{number}"))

    monkeypatch.setattr(os, "fsync", lambda number: (events.append(name_of(number)), fsync(number)))
    monkeypatch.setattr(Path, "rename", lambda self, to: (events.append(f"to {to.name}"), rename(self, to)))
    monkeypatch.setattr(shutil, "rmtree", lambda path, **options: (events.append("gone"), rmtree(path, **options)))
    with whole_folder(tmp_path / "model") as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "file").write_text("x")
    assert set(events[:3]) == {"inner", "file", draft.name}
    assert events[3:6] == [f"to {draft.name}-old", "to model", tmp_path.name] and set(events[6:]) == {"gone"}


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_another(tmp_path, monkeypatch):
    events, replace = [], Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: events.append(os.path.basename(os.readlink(f"/proc/self/fd/{number}"))))
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append(f"to {to.name}"), replace(self, to)))
    write_text(tmp_path / "status.json", "{}")
    assert events == [".status.json.draft", "to status.json"]


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002])
def test_files_and_folders_may_be_read_by_whom_the_umask_allows(mask, tmp_path):
    before = os.umask(mask)
    try:
        with whole_folder(tmp_path / "runs" / "model") as draft:
            write_text(draft / "config.json", "{}")
            write_tensors(draft / "model.safetensors", {"weight": torch.zeros(1)})
    finally:
        os.umask(before)
    found = [tmp_path / "runs", tmp_path / "runs" / "model", *(tmp_path / "runs" / "model").iterdir()]
    modes = {path.name: path.stat().st_mode & 0o777 for path in found}
    folder, file = 0o777 & ~mask, 0o666 & ~mask
    assert modes == {"runs": folder, "model": folder, "config.json": file, "model.safetensors": file}


@pytest.mark.parametrize("error", [DiskFullError, KeyboardInterrupt, SystemExit])
def test_a_failure_while_filling_leaves_the_old_folder_and_no_draft(error, tmp_path):
    folder = tmp_path / "model"
    with whole_folder(folder) as draft:
        (draft / "old").write_text("old")
    with pytest.raises(error), whole_folder(folder) as draft:
        (draft / "new").write_text("new")
        raise error
    assert [f.name for f in folder.iterdir()] == ["old"] and list(tmp_path.iterdir()) == [folder]


def test_a_failure_while_filling_leaves_no_folder_above_that_was_not_there(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(DiskFullError), whole_folder(tmp_path / "mine" / "a" / "b" / "model"):
        raise DiskFullError("full")
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"] and not list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("error", [DiskFullError, KeyboardInterrupt])
def test_a_failure_while_changing_places_keeps_the_old_folder(failing, error, tmp_path, monkeypatch):
    folder, rename, calls = tmp_path / "model", Path.rename, []
    with whole_folder(folder) as draft:
        (draft / "old").write_text("old")

    def flaky(path, target):
        calls.append(path)
        if len(calls) - 1 == failing:
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", flaky)
    with pytest.raises(error), whole_folder(folder) as draft:
        (draft / "new").write_text("new")
    assert [f.name for f in folder.iterdir()] == ["old"] and list(tmp_path.iterdir()) == [folder]


def test_two_drafts_of_one_folder_do_not_meet(tmp_path):
    folder = tmp_path / "model"
    with whole_folder(folder) as first, whole_folder(folder) as second:
        assert first != second
        (first / "first").write_text("")
        (second / "second").write_text("")
    assert [f.name for f in folder.iterdir()] == ["first"] and list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("error", [OSError(errno.EFBIG, "File too large"), RuntimeError("File too large (os error 27)")])
def test_a_file_that_is_larger_than_allowed_is_no_full_disk(error, tmp_path):
    with pytest.raises(errors.DiskFullError, match="exceed the system's limit") as told, room_for(10, tmp_path, hint="go on"):
        raise error
    assert "ulimit -f" in told.value.hint and "full" not in told.value.what


def test_a_link_to_a_folder_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for content in ("one", "two"):
        with whole_folder(tmp_path / "link") as draft:
            (draft / "file").write_text(content)
        assert (tmp_path / "real" / "file").read_text() == content and (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_the_place_of_a_disk_gets_the_files_and_stays(tmp_path, monkeypatch):
    place = tmp_path / "disk"
    place.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == place)
    number = place.stat().st_ino
    with whole_folder(place, replace=False) as draft:
        (draft / "plots").mkdir()
        (draft / "plots" / "a").write_text("a")
    assert place.stat().st_ino == number and sorted(path.name for path in place.iterdir()) == ["plots"]
    with pytest.raises(OSError, match="not empty"), whole_folder(place) as draft:
        (draft / "plots").mkdir()
    with pytest.raises(ValueError, match="wrong"), whole_folder(place) as draft:
        (draft / "b").write_text("b")
        raise ValueError("wrong")
    assert sorted(path.name for path in place.iterdir()) == ["plots"]


def test_a_mount_point_is_free_with_what_a_new_disk_has_and_what_was_left_half_written(tmp_path, monkeypatch):
    place = tmp_path / "out"
    for name in ("lost+found", ".out-0a1b2c3d"):
        (place / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match="exists"):
        require_free(place)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == place)
    require_free(place)
    (place / "more").write_text("")
    with pytest.raises(ConfigError, match="exists"):
        require_free(place)


def fail(*args, **kwargs):
    raise DiskFullError


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failed_write_leaves_the_old_file(step, tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    write_text(file, "old")
    monkeypatch.setattr(Path, step, fail)
    with pytest.raises(DiskFullError):
        write_text(file, "new")
    assert file.read_text() == "old"


def test_what_is_no_json_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"old": True})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"new": object()})
    assert [f.name for f in tmp_path.iterdir()] == ["a.json"] and "old" in (tmp_path / "a.json").read_text()


def test_a_folder_takes_the_place_of_the_old_one(tmp_path):
    folder = tmp_path / "model"
    for name in ("old", "new"):
        with whole_folder(folder) as draft:
            (draft / name).write_text(name)
    assert [f.name for f in folder.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [folder]
