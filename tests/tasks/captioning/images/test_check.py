"""What a check of captions finds."""

import shutil

import pytest
from PIL import Image

from captioned import write_captions
from vitrail.tasks.captioning.images.check import check_captions


@pytest.fixture
def table(tmp_path):
    return write_captions(tmp_path)


def kinds(issues):
    return [issue.kind for issue in issues]


def test_good_data_has_no_faults_and_is_summed_up(table):
    seen = []
    found = check_captions(table, on_start=seen.append, on_image=seen.append)
    assert not found.issues and not found.notices and seen == [32] + [1] * 32
    assert found.captions == {"min": 2, "median": 2, "max": 2}
    assert found.words == {"min": 6, "median": 7.0, "max": 8}
    assert found.to_json()["splits"] == {"all": 32}


def test_faults_are_named(table):
    (table.parent / "00.png").write_bytes(b"no image")
    (table.parent / "01.png").unlink()
    table.write_text(table.read_text() + "02.png,\n")
    found = check_captions(table)
    assert sorted(kinds(found.issues)) == ["missing-file", "no-caption", "unreadable"]
    assert {issue.path.rpartition("/")[2].partition(":")[0] for issue in found.issues} == {"00.png", "01.png", "captions.csv"}


def test_copies_are_noted_and_across_splits_they_are_a_fault(table):
    shutil.copy(table.parent / "00.png", table.parent / "copy.png")
    table.write_text(table.read_text() + "copy.png,once more\ncopy.png,once more\n")
    found = check_captions(table)
    assert not found.issues and sorted(kinds(found.notices)) == ["copy", "repeated"]
    lines = table.read_text().splitlines()
    rows = [f"{line},{'test' if line.startswith('copy') else 'train'}" for line in lines[1:]]
    table.write_text("\n".join([f"{lines[0]},split", *rows]) + "\n")
    assert kinds(check_captions(table).issues) == ["leak"]


def test_the_command_tells_all_of_it(vitrail, table):
    answer = vitrail("data", "check", table)
    assert answer.code == 0 and "64 captions of 32 images" in answer.out and "no faults" in answer.out
    (table.parent / "00.png").write_bytes(b"no image")
    answer = vitrail("data", "check", table.rename(table.with_name("list.csv")), "--task", "caption", "--json")
    assert answer.code == 3 and '"unreadable"' in answer.out


def test_the_command_shows_images_with_a_caption(vitrail, table, tmp_path):
    answer = vitrail("data", "show", table, "--count", "2", "--out", tmp_path / "show.png", "--model.image-size", "32")
    assert answer.code == 0, answer.err
    assert Image.open(tmp_path / "show.png").size[0] > 100
