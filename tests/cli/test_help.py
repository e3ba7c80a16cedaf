"""Help and version: quick, complete, and without torch."""

import statistics
import subprocess
import sys

import pytest

import vitrail
from vitrail.cli.app import app

COMMANDS = [
    "demo", "train", "resume", "evaluate", "predict", "embed", "similar", "translate", "caption", "sample", "study", "export",
    "bench", "serve", "compare", "sweep", "summary", "convert", "models", "recipes", "doctor", "data",
]  # fmt: skip
BELOW = ["data check", "data show"]
PROMISED_FLAGS = {
    "train": "--data --out --recipe --model --from --epochs --batch-size --lr --seed --image-size --precision "
    "--checkpoint-every-steps --config --fast-dev-run",
    "evaluate": "--data --split --json",
    "predict": "--top --json",
    "study": "--data --out --split --images --json",
    "export": "--to --precision --calibrate --out --merge --max-drop --image-size --force --json",
    "serve": "--port --host --token-file --allow-origin --engine --precision --batch-size --queue --deadline --max-images "
    "--max-megapixels --max-texts --max-characters --max-mebibytes --access-log",
    "bench": "--data --engines --precisions --batch-sizes --threads --max-drop --out --json",
    "compare": "--out --json",
    "sweep": "--data --out --over --recipe --config --against --json",
    "summary": "--image-size --json",
    "demo": "--out --seed",
    "data check": "--json",
    "data show": "--out --recipe --config --split --count --seed",
}
SECONDS, TIMES = 0.3, 4
"""An answer takes a third of a second, or on slow machines four times what the library of the commands takes."""


def python(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("command", ["", "train", "data show"])
def test_help_answers_in_under_a_third_of_a_second(command, timed):
    took, limit = [], max(SECONDS, TIMES * timed("-c", "import cyclopts")[1])
    for _ in range(3):
        answer, seconds = timed("-m", "vitrail", *command.split(), "--help")
        took.append(seconds)
        assert answer.returncode == 0
        assert f"Usage: vitrail {command}".rstrip() in answer.stdout
        assert answer.stderr == ""
        if sum(seconds < limit for seconds in took) == 2:
            break  # a third changes nothing
    assert statistics.median(took) < limit


def test_help_of_no_command_imports_what_takes_long():
    script = f"""
import sys
from vitrail.cli.app import app
for command in {["", *COMMANDS, *BELOW]!r}:
    app([*command.split(), "--help"], exit_on_error=False, result_action="return_value")
    slow = {{"torch", "numpy", "sklearn", "matplotlib", "PIL", "yaml", "openvino", "onnx", "fastapi"}}
    assert not slow & sys.modules.keys(), command
"""
    python("-c", script)


def test_the_version_is_the_packages_own():
    assert python("-m", "vitrail", "--version").stdout.strip() == vitrail.__version__


def test_the_help_lists_every_command(vitrail):
    lines = vitrail("--help").out.splitlines()
    first_words = {line.strip("│ ").split(" ")[0] for line in lines}
    assert set(COMMANDS) <= first_words
    assert {name for name in app if not name.startswith("-")} == set(COMMANDS)


@pytest.mark.parametrize("command", PROMISED_FLAGS)
def test_the_help_of_a_command_names_every_promised_flag(vitrail, command):
    words = vitrail(*command.split(), "--help").out.split()
    assert [flag for flag in PROMISED_FLAGS[command].split() if flag not in words] == []


def test_no_command_at_all_prints_the_help(vitrail):
    answer = vitrail()
    assert (answer.code, answer.err) == (0, "")
    assert "Usage: vitrail" in answer.out
