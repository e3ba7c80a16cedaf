"""Measurements are kept by machine; a file that is damaged or cannot be written is no obstacle."""

import json

import pytest
import torch

from vitrail.runtime import environment
from vitrail.runtime.measurements import cache_file, keep, kept, machine


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of a user who has measured nothing yet."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "measurements.json"


def test_what_was_kept_is_there_for_the_same_machine_alone(file, monkeypatch):
    assert kept() is None
    keep({"first": 1})
    changes = (
        (environment, "processor_name", lambda: "another"),
        (environment, "instructions", lambda: ["none"]),
        (torch, "get_num_threads", lambda: 77),
        (torch, "__version__", "9.9"),
    )
    for number, (owner, name, value) in enumerate(changes):
        with monkeypatch.context() as other:
            other.setattr(owner, name, value)
            assert kept() is None
            keep(number)
            assert kept() == number
    assert kept() == {"first": 1} and len(json.loads(file.read_text())) == 5


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "3", "\ufeff", '{"another": 1}'])
def test_a_damaged_file_holds_nothing_and_is_replaced(text, file):
    file.parent.mkdir()
    file.write_text(text)
    assert kept() is None
    keep([1, 2])
    assert kept() == [1, 2] and json.loads(file.read_text())[machine()] == [1, 2]


def test_nothing_is_kept_where_there_is_no_folder_for_it(file, monkeypatch):
    file.parent.write_text("a file where the folder would be")
    keep(1)
    assert kept() is None
    monkeypatch.setenv("VITRAIL_CACHE", "")
    assert cache_file() is None
    keep(1)
    assert kept() is None


def test_without_a_name_they_lie_where_the_user_has_such_things(monkeypatch, tmp_path):
    monkeypatch.delenv("VITRAIL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "vitrail" / "measurements.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(cache_file()) == "/home/somebody/.cache/vitrail/measurements.json"
