"""Names of files and of classes may be anybody's, and a terminal obeys none of them."""

import os
import warnings
from pathlib import Path

import pytest

from vitrail.cli.console import problem, result
from vitrail.runtime.terminal import escaped, hide_torch_warnings, note, one_line, restarts
from vitrail.training.runs.run_folder import RunFolder

EVIL = "cat\x1b[2J\x1b]0;title\x07\r\x9b31m\u202etac\udcff"
SHOWN = r"cat\x1b[2J\x1b]0;title\x07\r\x9b31m\u202etac\udcff"


def test_what_a_terminal_obeys_is_shown_as_its_number_and_all_else_as_it_is():
    assert escaped(EVIL) == SHOWN
    assert escaped("Körner\t𝄞 עברית\nكلب 🪟") == "Körner\t𝄞 עברית\nكلب 🪟"


@pytest.mark.parametrize("tell", [note, result, lambda text: problem("no", hint=text)])
def test_no_output_of_a_command_has_it(tell, capsys):
    tell(EVIL)
    printed = "".join(capsys.readouterr())
    assert SHOWN in printed.replace("\n", "") and "\x1b" not in printed


def test_no_log_of_a_run_has_it(tmp_path):
    RunFolder(tmp_path).log(EVIL)
    assert SHOWN in (tmp_path / "train.log").read_text(encoding="utf-8")


def test_a_name_with_line_breaks_stays_in_its_line():
    assert one_line(Path("a\nb.jpg: cat 99.9 %\tc.jpg")) == "a\\nb.jpg: cat 99.9 %\\tc.jpg"


@pytest.mark.parametrize(("value", "count"), [(None, 0), ("0", 0), ("3", 3), ("", 0), ("many", 0)])
def test_restarts_are_those_that_torchrun_counts(value, count, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    if value is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", value)
    assert restarts() == count


@pytest.mark.parametrize(("processes", "before", "level"), [("1", None, None), ("2", None, "ERROR"), ("2", "INFO", "INFO")])
def test_torch_is_quieter_in_several_processes_unless_the_user_has_said_otherwise(processes, before, level, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", processes)
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", before or "")
    if before is None:
        monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")
    with warnings.catch_warnings(record=True) as shown:
        hide_torch_warnings()
        warnings.warn("Grad strides do not match bucket view strides. This may indicate …", stacklevel=1)  # as DDP does
    assert os.environ.get("TORCH_CPP_LOG_LEVEL") == level
    assert len(shown) == (processes == "1")
