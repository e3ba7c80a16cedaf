"""What commands write as they come: complete lines, kept under a name that says so where a command ends before its time."""

import csv
import json
import os
import sys

import numpy as np
import pytest

from small_captioner import small_captioner
from stick_figures import write_people
from tiny_pose import tiny_pose
from vitrail.cli.app import main
from vitrail.cli.progress import CountProgress
from vitrail.cli.use.answers import Answers
from vitrail.errors import DataError
from vitrail.files import partial_of
from vitrail.tasks.answer_table import growing_table


@pytest.fixture(scope="module")
def named(run, pictures, tmp_path_factory):
    """What commands are given: a classifier, a model that finds joints, a captioner, and images of colours and of people."""
    place = tmp_path_factory.mktemp("models")
    tiny_pose().save_pretrained(place / "pose")
    small_captioner().save_pretrained(place / "captioner")
    write_people(place, 6)
    models = {"CLASSES": run.folder, "JOINTS": place / "pose", "CAPTIONS": place / "captioner"}
    return {**models, "COLOURS": pictures, "PEOPLE": place}


def rows_of(file):
    with file.open(encoding="utf-8-sig", newline="") as lines:
        return len(list(csv.DictReader(lines)))


def files_in(folder):
    return len([path for path in folder.rglob("*") if path.is_file()])


def vectors_in(file):
    with np.load(file) as found:
        return len(found["vectors"])


COMMANDS = [
    ("predict CLASSES COLOURS", "--csv", "a.csv", rows_of),
    ("predict CLASSES COLOURS", "--sort-into", "sorted", files_in),
    ("predict JOINTS PEOPLE", "--csv", "a.csv", rows_of),
    ("predict JOINTS PEOPLE", "--pictures", "drawn", files_in),
    ("caption CAPTIONS COLOURS --beam 1 --max-length 2", "--csv", "a.csv", rows_of),
    ("embed CLASSES COLOURS", "--out", "a.npz", vectors_in),
]


@pytest.fixture(params=COMMANDS, ids=lambda row: f"{row[0]} {row[1]}")
def command(request, named):
    """The words of a command, the name of the file that it writes, and what counts what is in one."""
    words, flag, name, count = request.param
    return [*(str(named.get(word, word)) for word in words.split()), "--batch-size", "2", flag], name, count


def test_an_interrupted_command_leaves_what_it_has_under_a_name_that_says_so(vitrail, command, tmp_path, monkeypatch):
    words, name, count = command
    batches = []

    def stop_after_the_second(self, size):
        batches.append(size)
        if len(batches) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CountProgress, "advance", stop_after_the_second)
        answer = vitrail(*words, tmp_path / name)
    partial = partial_of(tmp_path / name)
    assert answer.code == 130 and [path.name for path in tmp_path.iterdir()] == [f"{name}.partial"]
    assert count(partial) == 4 and f"in {partial}" in answer.err
    again = vitrail(*words, tmp_path / name)
    assert again.code == 2 and f"{name}.partial' exists" in again.err and count(partial) == 4


def test_a_closed_pipe_takes_no_file_along(command, tmp_path, monkeypatch, capfd):
    words, name, count = command
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patched, os.fdopen(writer, "w") as closed:
        patched.setattr(sys, "stdout", closed)
        main([*words, str(tmp_path / name)])
    assert [path.name for path in tmp_path.iterdir()] == [name] and count(tmp_path / name) >= 6
    assert "error" not in capfd.readouterr().err


def test_without_a_file_a_closed_pipe_ends_a_command_quietly(named, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patched, os.fdopen(writer, "w") as closed:
        patched.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as stop:
            main(["predict", str(named["CLASSES"]), str(named["COLOURS"]), "--json"])
    assert stop.value.code == 1 and not capfd.readouterr().err


@pytest.mark.parametrize(
    "words", ["predict CLASSES COLOURS", "predict JOINTS PEOPLE", "caption CAPTIONS COLOURS --beam 1 --max-length 2"]
)
def test_json_is_one_document_whatever_ends_the_command(vitrail, named, monkeypatch, words):
    words = [named.get(word, word) for word in words.split()]
    whole = json.loads(vitrail(*words, "--json").out)
    with monkeypatch.context() as patched:
        patched.setattr(CountProgress, "advance", lambda *_: 1 / 0)
        answer = vitrail(*words, "--json", "--batch-size", 3)
    assert answer.code == 1 and json.loads(answer.out) == whole[:3] and "3 entries" in answer.err


def test_an_interrupted_command_names_what_it_could_not_read(vitrail, named, tmp_path, monkeypatch):
    (tmp_path / "bad.png").write_text("no picture")
    with monkeypatch.context() as patched:
        patched.setattr(CountProgress, "advance", lambda *_: 1 / 0)
        answer = vitrail("predict", named["CLASSES"], tmp_path / "bad.png", named["COLOURS"], "--batch-size", 5)
    assert answer.code == 1 and "bad.png" in answer.err and len(answer.out.splitlines()) == 4


def test_rows_of_a_table_are_there_as_they_come_and_are_whole(tmp_path):
    file = tmp_path / "new" / "a.csv"
    with growing_table(file, ["image", "label"]) as write:
        for count, name in enumerate(["a.png", "b\n.png", "=c,"], 1):
            write([name, "x"])
            assert rows_of(partial_of(file)) == count and not file.exists()
    assert rows_of(file) == 3 and file.read_bytes().startswith(b"\xef\xbb\xbfimage,label\n") and not partial_of(file).exists()


def test_a_full_disk_leaves_whole_lines_and_the_other_files(vitrail, named, tmp_path, monkeypatch):
    calls = []

    def full_at_the_third(file, content):
        calls.append(content)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return file.write(content) > 0

    monkeypatch.setattr("vitrail.tasks.answer_table._write_whole", full_at_the_third)
    words = ["--csv", tmp_path / "a.csv", "--sort-into", tmp_path / "sorted"]
    answer = vitrail("predict", named["CLASSES"], named["COLOURS"], *words, "--json")
    assert answer.code == 1 and "No space left" in answer.err and len(json.loads(answer.out)) == 24
    assert rows_of(tmp_path / "a.csv.partial") == 1 and files_in(tmp_path / "sorted") == 24


def test_each_prediction_reaches_every_sink_that_works_and_errors_are_raised_at_the_end():
    ends, received = {}, {name: [] for name in ("good", "bad")}

    class Sink:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            def write(value):
                if self.name == "bad" and value > 1:
                    raise OSError("full")
                received[self.name].append(value)

            return write

        def __exit__(self, kind, error, trace):
            ends[self.name] = kind

    with pytest.raises(OSError, match="full"), Answers() as answers:
        for name in received:
            answers.to(Sink(name), lambda source, value: [value, value])
        unreadable = answers.add_each("abc", [[1, DataError("no image")], [2]], lambda count: None)
        assert [error.what for error in unreadable] == ["no image"]
    assert received == {"good": [1, 1, 2, 2], "bad": [1, 1]} and ends == {"good": None, "bad": OSError}
