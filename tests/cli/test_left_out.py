"""Every command that opens data tells in one line what it leaves out."""

import shutil

import pytest

pytestmark = pytest.mark.usefixtures("unreported")

LINE = "left out: 2 .txt, 1 .mp3, 1 hidden or a system's own"


@pytest.fixture
def untidy(pictures, tmp_path):
    """The pictures with other files among them."""
    root = shutil.copytree(pictures, tmp_path / "untidy")
    for name in ("red/1.txt", "2.txt", "blue/film.mp3", "green/.DS_Store"):
        (root / name).write_bytes(b"x")
    return root


def test_files_left_out_are_counted_by_every_command(vitrail, untidy, run, tmp_path, tiny_flags):
    for words in (
        ("train", "--data", untidy, "--out", tmp_path / "run", *tiny_flags),
        ("evaluate", tmp_path / "run"),
        ("evaluate", run.folder, "--data", untidy),
        ("study", run.folder, "--data", untidy, "--images", 2, "--out", tmp_path / "study"),
        ("data", "show", untidy, "--out", tmp_path / "samples.png", "--image-size", 16),
    ):
        answer = vitrail(*words)
        assert answer.code == 0 and answer.err.splitlines().count(LINE) == 1, (words, answer.err)
        assert LINE not in answer.out
    assert LINE in (tmp_path / "run" / "train.log").read_text()
    assert f"note     {LINE}" in vitrail("data", "check", untidy).out
