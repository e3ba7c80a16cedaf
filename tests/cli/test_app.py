"""What holds for the command line as a whole, whatever the command."""

import subprocess
import sys
import time

import pytest


def test_a_missing_stderr_spoils_nothing(run):
    words = [sys.executable, "-m", "vitrail", "evaluate", str(run.folder), "--json"]
    answer = subprocess.run(f'"{words[0]}" {" ".join(words[1:])} 2>&-', shell=True, capture_output=True, text=True)
    assert answer.returncode == 0
    assert answer.stdout.startswith("{")


@pytest.mark.parametrize("words", ["--epoch 3", "--trainng.epochs 3", "--training.epoch 3", "--learning-rate 3"])
def test_a_flag_that_does_not_exist_brings_a_suggestion(vitrail, pictures, words):
    answer = vitrail("train", "--data", pictures, *words.split())
    assert answer.code == 2
    assert "did you mean" in answer.err or "known: " in answer.err


def test_a_mistyped_short_flag_brings_the_setting_it_stands_for(vitrail, pictures):
    assert "did you mean 'training.epochs'?" in vitrail("train", "--data", pictures, "--epoch", 3).err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--lr 1e-3 --optimizer.lr 5e-4", "lr contradicts optimizer.lr"),
        ("--optimizer.lr 5e-4 --optimizer.lr 7e-4", "--optimizer.lr is given twice"),
        ("--start one --from two", "--start contradicts"),
        ("--no-flip --augmentation.horizontal-flip 0.3", "--augmentation.horizontal_flip contradicts"),
    ],
)
def test_a_setting_that_is_given_twice_is_refused(vitrail, pictures, tmp_path, words, told):
    answer = vitrail("train", "--data", pictures, "--out", tmp_path / "run", *words.split())
    assert answer.code == 2 and told in answer.err


def test_a_configuration_that_grows_when_it_is_printed_is_refused_at_once(vitrail, pictures, tmp_path):
    layers = [f"- &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("about:\n- &l0 [x]\n" + "\n".join(layers) + "\n")
    start = time.perf_counter()
    answer = vitrail("train", "--data", pictures, "--config", tmp_path / "bomb.yaml")
    assert answer.code == 2
    assert len(answer.err) < 1000
    assert time.perf_counter() - start < 10


def test_an_empty_argument_is_no_folder(vitrail):
    assert vitrail("train", "--data", "").code == 3
    assert vitrail("evaluate", "").code == 4
    assert vitrail("train", "--data", "digits", "--from", "").code == 4
