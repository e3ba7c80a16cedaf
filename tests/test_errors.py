"""Errors say what, where and what to do, and have the exit codes that scripts rely on."""

from pathlib import Path

import pytest

import vitrail
from vitrail.errors import ConfigError, DataError, DivergedError, ModelFileError, VitrailError, nearest, unknown
from vitrail.runtime.signals import InterruptedRunError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VitrailError("x"), 1),
        (ConfigError("x"), 2),
        (DataError("x"), 3),
        (ModelFileError("x"), 4),
        (DivergedError("x"), 5),
        (InterruptedRunError(2, Path("run"), "x"), 130),
        (InterruptedRunError(15, Path("run"), "x"), 143),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    assert error.exit_code == code
    assert isinstance(error, vitrail.VitrailError)


def test_an_interrupted_run_changes_no_other_errors_exit_code():
    InterruptedRunError(2, Path("run"), "x")
    assert InterruptedRunError.exit_code == VitrailError.exit_code == 1


def test_an_error_is_up_to_three_lines():
    assert str(VitrailError("it broke")) == "it broke"
    error = VitrailError("it broke", where="here", hint="mend it")
    assert str(error) == "it broke\nwhere: here\nwhat to do: mend it"
    assert (error.what, error.where, error.hint) == ("it broke", "here", "mend it")


@pytest.mark.parametrize(
    ("word", "expected"),
    [("ViT-B16", "ViT-B/16"), ("vit-b/16", "ViT-B/16"), ("VIT-S/16", "ViT-S/16"), ("resnet", None), ("", None)],
)
def test_the_nearest_word_is_the_most_alike_or_none(word, expected):
    assert nearest(word, ["ViT-S/16", "ViT-B/16", "ViT-L/16"]) == expected


def test_an_unknown_name_is_an_error_that_lists_the_known():
    error = unknown("colour", "gren", ["red", "green"], where="--colour")
    assert error.what == "unknown colour 'gren'"
    assert error.where == "--colour"
    assert error.hint == "did you mean 'green'? known: red, green"
    assert unknown("colour", "xyz", ["red", "green"]).hint == "known: red, green"
