"""A checkpoint is there whole or not at all, and at every moment there is one."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from soak_runs import disk_full_at

from vitrail.errors import DiskFullError, ModelFileError
from vitrail.training.runs.checkpoint import checkpoints, load_checkpoint, recover_checkpoints, save_checkpoint


def save(run: Path, step: int, size: int = 8) -> None:
    tensors = {"model": {"a": torch.full((size, 3), float(step))}, "random": {"0.cpu": torch.get_rng_state()}}
    save_checkpoint(run / "checkpoints" / f"step-{step:09d}", tensors, {"done": step}, resume="vitrail resume run")


def names(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").iterdir())


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path):
    save(tmp_path, 3)
    tensors, state = load_checkpoint(checkpoints(tmp_path)[0])
    assert state == {"done": 3}
    assert torch.equal(tensors["model"]["a"], torch.full((8, 3), 3.0))
    assert torch.equal(tensors["random"]["0.cpu"], torch.get_rng_state())


def test_its_checksums_are_those_of_the_tool_of_that_name(tmp_path):
    save(tmp_path, 3)
    folder = checkpoints(tmp_path)[0]
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK") == 3


def test_the_last_two_are_kept_the_newest_first(tmp_path):
    for step in (9, 10, 11, 1000):
        save(tmp_path, step)
    assert [p.name for p in checkpoints(tmp_path)] == ["step-000001000", "step-000000011"]


def test_nothing_older_goes_before_the_new_one_counts(tmp_path, monkeypatch):
    for step in (1, 2):
        save(tmp_path, step)

    def dying(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 3)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]
    assert load_checkpoint(checkpoints(tmp_path)[0])[1] == {"done": 2}


def test_a_checkpoint_of_the_same_step_takes_the_other_ones_place_only_when_it_is_complete(tmp_path, monkeypatch):
    save(tmp_path, 1)
    seen, rmtree = [], shutil.rmtree

    def looking(folder, **options):
        if folder.name.endswith("-old"):
            seen.append(load_checkpoint(checkpoints(tmp_path)[0])[1])
        rmtree(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", looking)
    save(tmp_path, 1)
    assert seen == [{"done": 1}] and names(tmp_path) == ["step-000000001"]


def test_a_checkpoint_without_its_mark_does_not_count(tmp_path):
    save(tmp_path, 1)
    (checkpoints(tmp_path)[0] / "SHA256SUMS").unlink()
    with pytest.raises(ModelFileError, match="not complete"):
        load_checkpoint(checkpoints(tmp_path)[0])


def test_everything_is_on_the_disk_before_the_next_thing_depends_on_it(tmp_path, monkeypatch):
    """The order of a write that a power cut cannot break: the files, their names, then the folder's name."""
    events, fsync, rename = [], os.fsync, Path.rename

    def path_of(number: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{number}"))

    monkeypatch.setattr(os, "fsync", lambda number: (events.append(path_of(number)), fsync(number)))
    monkeypatch.setattr(Path, "rename", lambda self, to: (events.append(f"to {to.name}"), rename(self, to)))
    save(tmp_path, 3)
    at = events.index("to step-000000003")
    files = {"model.safetensors", "random.safetensors", "state.json", "SHA256SUMS"}
    assert files < set(events[:at]) and events[at - 1].startswith(".step-")
    assert events[at + 1 :] == ["checkpoints"]


def test_what_could_not_be_written_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "checkpoints/step-1", {"model": {"a": torch.ones(2)}}, {"not JSON": object()}, resume="")
    assert names(tmp_path) == []


def test_a_full_disk_is_noticed_before_anything_is_written_and_told_in_bytes(tmp_path, monkeypatch):
    save(tmp_path, 1)
    usage = type("Usage", (), {"free": 1234})
    monkeypatch.setattr("vitrail.files.shutil.disk_usage", lambda path: usage)
    with pytest.raises(DiskFullError) as caught:
        save(tmp_path, 2)
    assert "1,234 are free" in caught.value.what and "bytes are needed" in caught.value.what
    assert "vitrail resume run" in caught.value.hint and names(tmp_path) == ["step-000000001"]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.9, 0.999])
def test_a_disk_that_fills_up_while_it_is_written_leaves_the_one_before(tmp_path, share):
    assert disk_full_at(share, tmp_path) is None


def test_a_process_that_cannot_write_still_gathers_every_tensor_with_the_others(tmp_path, monkeypatch):
    gathered = []
    monkeypatch.setattr("vitrail.training.loop.parallel.unsharded", lambda tensor: gathered.append(tensor) or tensor)
    monkeypatch.setattr("vitrail.files.shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(DiskFullError):
        save(tmp_path, 1)
    assert len(gathered) == 2


def test_what_a_killed_run_left_half_written_is_cleared_away(tmp_path):
    save(tmp_path, 1)
    folder = tmp_path / "checkpoints"
    (folder / ".step-000000002-abc").mkdir()
    (folder / ".step-000000002-abc" / "model.safetensors").write_bytes(b"half")
    (folder / "step-000000001").rename(folder / ".step-000000001-xyz-old")  # killed between the two renames
    (folder / ".step-000000001-xyz").mkdir()
    recover_checkpoints(tmp_path)
    assert names(tmp_path) == ["step-000000001"] and load_checkpoint(checkpoints(tmp_path)[0])[1] == {"done": 1}
