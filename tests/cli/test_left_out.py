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
        ("predict", run.folder, untidy),
        ("embed", run.folder, untidy, "--out", tmp_path / "vectors.npz"),
        ("similar", run.folder, untidy / "red/0.png", "--among", untidy),
    ):
        answer = vitrail(*words)
        assert answer.code == 0 and answer.err.splitlines().count(LINE) == 1, (words, answer.err)
        assert LINE not in answer.out
    assert LINE in (tmp_path / "run" / "train.log").read_text()
    assert f"note     {LINE}" in vitrail("data", "check", untidy).out


def test_images_without_labels_and_what_a_table_does_not_list_are_counted(vitrail, run, pictures, tmp_path):
    folder = shutil.copytree(pictures / "red", tmp_path / "bare")
    (folder / "film.mp4").write_bytes(b"x")
    (folder / "gone.jpg").symlink_to("nowhere.jpg")
    seen = vitrail("study", run.folder, "--data", folder, "--images", 2, "--out", tmp_path / "study")
    assert "left out: 1 .mp4, 1 broken link" in seen.err.splitlines()
    (folder / "labels.csv").write_text("image,label\n0.png,red\n1.png,blue\n")
    answer = vitrail("evaluate", run.folder, "--data", folder)
    rest = len(list(folder.glob("*.png"))) - 2
    assert f"left out: {rest} images that no table names, 1 .mp4, 1 broken link" in answer.err.splitlines()


def test_a_folder_with_other_files_alone_says_what_it_holds(vitrail, run, tmp_path):
    folder = tmp_path / "films"
    for place in ("A/1.mp4", "A/2.MP4", "B/3.cr2", "B/Thumbs.db"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(b"x")
    commands = (("predict", run.folder, folder), ("evaluate", run.folder, "--data", folder), ("data", "check", folder))
    for words in (*commands, ("data", "check", folder, "--task", "mae"), ("study", run.folder, "--data", folder)):
        answer = vitrail(*words)
        assert answer.code == 3 and "holds 2 .mp4, 1 .cr2, 1 hidden or a system's own" in answer.err, (words, answer.err)
