"""Names of files and of classes may be anybody's, and a terminal obeys none of them."""

from pathlib import Path

import pytest

from vitrail.cli.console import problem, result
from vitrail.runtime.terminal import escaped, note, one_line
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
