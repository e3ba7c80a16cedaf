"""``vitrail data check`` tells what is wrong on stdout and by its exit code."""

import json
import shutil

import pytest
from PIL import Image

from vitrail.cli.look.data_check import check


@pytest.fixture
def checked(capsys):
    """``checked(source)`` runs the command: its exit code, and what it printed."""

    def call(source: object, *, json: bool = False) -> tuple[int, str]:
        capsys.readouterr()
        code = 0
        try:
            check(str(source), json=json)
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out

    return call


def test_sound_data_gives_a_short_summary_and_0(checked, pictures):
    code, out = checked(pictures)
    assert code == 0 and "no faults" in out
    assert "24 in 3 classes" in out and "10×10" in out and "RGB 24" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["red"] == ["8"] and rows["all"] == ["24"]


def test_every_fault_has_a_line_of_kind_path_and_what_and_the_code_is_3(checked, pictures, tmp_path):
    root = shutil.copytree(pictures, tmp_path / "pictures")
    (root / "red" / "text.jpg").write_text("no picture")
    (root / "none").mkdir()
    shutil.copy(root / "red" / "0.png", root / "blue" / "copy.png")
    code, out = checked(root)
    lines = [line.split("  ") for line in out.splitlines()]
    assert code == 3 and ["3 faults"] in lines
    assert [line[:2] for line in lines if line[0] in ("unreadable", "empty-class", "conflict")] == [
        ["empty-class", str(root / "none")],
        ["unreadable", str(root / "red" / "text.jpg")],
        ["conflict", str(root / "blue" / "copy.png")],
    ]


def test_the_document_says_the_same(checked, pictures, tmp_path):
    code, out = checked(pictures, json=True)
    assert code == 0 and json.loads(out)["splits"] == {"all": {"blue": 8, "green": 8, "red": 8}}
    root = shutil.copytree(pictures, tmp_path / "pictures")
    (root / "red" / "0.png").write_bytes(b"")
    code, out = checked(root, json=True)
    assert code == 3 and checked(root)[1].endswith("\n1 fault\n")
    assert [fault["path"] for fault in json.loads(out)["faults"]] == [str(root / "red" / "0.png")]


def test_notices_are_told_but_a_few_of_a_kind_only(checked, pictures, tmp_path):
    root = shutil.copytree(pictures, tmp_path / "pictures")
    for number in range(25):
        (root / f"{number}.txt").write_text("x")
    code, out = checked(root)
    assert code == 0 and out.count("note: ignored") == 11 and "15 more" in out


def test_images_that_are_learned_from_without_labels_are_checked_without(vitrail, pictures, tmp_path):
    for split in ("train", "val"):
        (tmp_path / "data" / split).mkdir(parents=True)
    for number in range(8):
        shutil.copy(pictures / "red" / f"{number}.png", tmp_path / "data" / "train" / f"{number}.png")
    assert vitrail("data", "check", tmp_path / "data").code == 3
    sound = vitrail("data", "check", tmp_path / "data", "--task", "mae")
    assert sound.code == 0 and "images   8\n" in sound.out and "no faults" in sound.out and "all" in sound.out
    shutil.copy(tmp_path / "data" / "train" / "0.png", tmp_path / "data" / "val" / "copy.png")
    (tmp_path / "data" / "train" / "1.png").write_bytes(b"")
    found = vitrail("data", "check", tmp_path / "data", "--task", "mae")
    kinds = {line.split("  ")[0] for line in found.out.splitlines()}
    assert found.code == 3 and {"duplicate", "unreadable"} <= kinds
    refused = vitrail("data", "check", tmp_path / "data", "--task", "mae", "--out", tmp_path / "page")
    assert refused.code == 2 and "mae learns without labels" in refused.err


def test_many_classes_are_summed_up(checked, tmp_path):
    for number in range(50):
        (tmp_path / str(number)).mkdir()
        for copy in range(1 + number // 25):
            Image.new("RGB", (1, 1), (number, copy, 0)).save(tmp_path / str(number) / f"{copy}.png")
    code, out = checked(tmp_path)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and ["smallest", "class", "1"] in rows and ["largest", "class", "2"] in rows and ["all", "75"] in rows
    assert len(rows) < 15


def test_faults_stand_above_notes_and_notes_that_seldom_matter_below_the_others(checked, pictures, tmp_path):
    root = shutil.copytree(pictures, tmp_path / "pictures")

    Image.new("RGB", (9, 9), "red").save(root / "blue" / "0.png", icc_profile=b"another")
    (root / "red" / "notes.txt").touch()
    (root / "red" / "text.jpg").write_text("no picture")
    for number in range(100):
        Image.effect_noise((12, 12), 90 + number).save(root / "red" / f"noise{number}.png")
    lines = checked(root)[1].splitlines()
    kinds = [line.split("  ")[0] for line in lines if line.startswith(("note: ", "unreadable"))]
    assert kinds[:2] == ["unreadable", "note: imbalance"] and {*kinds[2:]} == {"note: profile", "note: ignored"}
    assert lines[-1] == "1 fault"
