"""``vitrail translate``: a line for each line."""

import io
import json
import os
from types import SimpleNamespace

import pytest
import soak_texts
from PIL import Image

from words import WORDS, write_pairs


@pytest.fixture
def ask(vitrail, translated_run, monkeypatch):
    """The command on some bytes: its exit code, standard output, standard error."""

    def ask(given: bytes, *words):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(given), isatty=lambda: False))
        answer = vitrail("translate", translated_run.folder, *words)
        return answer.code, answer.out, answer.err

    return ask


def test_a_line_goes_out_for_each_that_comes_in_and_what_is_no_text_is_told_by_its_line(ask):
    code, out, err = ask(b"one cat\r\n\n  \nred dog\nx\x0cy \xe2\x80\xa8 z\nlast", "--beam", 1)
    assert code == 0 and len(out.splitlines()) == out.count("\n") == 6
    assert err == "lines cleaned of invisible characters or odd blanks: 1\n"
    assert out.startswith("eins Katze\n\n\nrot Hund\n")
    code, out, err = ask(b"one\n\xff\xfe\n", "--beam", 1)
    assert code == 3 and "standard input, line 2" in err and not out


def test_a_file_is_translated_as_standard_input_is(ask, tmp_path):
    file = tmp_path / "in.txt"
    file.write_bytes(b"\xef\xbb\xbfone cat\r\n\nred dog")
    assert ask(b"dog", file, "--beam", 1) == (0, "eins Katze\n\nrot Hund\n", "")
    file.write_bytes(b"one\n\xff\xfe\n")
    code, out, err = ask(b"", file)
    assert code == 3 and f"{file}, line 2" in err and not out
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent.txt", "pipe", ""):
        code, out, err = ask(b"", tmp_path / name)
        assert code == 3 and "cannot be read" in err and "standard input" in err and "Traceback" not in err


@pytest.mark.soak
def test_whatever_the_lines_are_as_many_go_out_as_come_in(translated_run):
    lines = soak_texts.random_lines(200)
    assert soak_texts.failure_of_translating(lines, translated_run.folder) is None


def test_json_and_attention_say_more(ask, tmp_path):
    code, out, _ = ask(b"one cat\n\nred dog\n", "--json", "--attention", tmp_path / "maps.png")
    found = json.loads(out)
    assert code == 0 and [one["source"] for one in found] == ["one cat", "", "red dog"] and found[0]["score"] < 0
    assert Image.open(tmp_path / "maps.png").size[0] > 500
    code, out, err = ask(b"one\n", "--attention", tmp_path / "maps.png")
    assert code == 2 and "maps.png" in err and not out


def test_evaluation_and_summary_know_translators_and_commands_for_images_say_so(vitrail, translated_run, tmp_path):
    scores = json.loads(vitrail("evaluate", translated_run.folder, "--json").out)
    assert scores.keys() >= {"bleu", "chrf", "signature", "sentences", "loss"} and scores["split"] == "test"
    other = tmp_path / "pairs.tsv"
    other.write_text("en\tde\none cat\teins Katze\n")
    assert "sentences 1" in vitrail("evaluate", translated_run.folder / "best", "--data", other).out
    assert "total" in vitrail("summary", translated_run.folder).out
    answer = vitrail("predict", translated_run.folder, other)
    assert answer.code == 4 and "no model of images" in answer.err
    assert vitrail("evaluate", translated_run.folder, "--precision", "bf16").code == 2


def test_a_translator_is_exported_and_what_makes_no_sense_of_texts_is_refused(vitrail, translated_run, run, tmp_path):
    folder, model = tmp_path / "int8", translated_run.folder
    answer = vitrail("export", model, "--to", "ctranslate2", "--precision", "int8", "--force", "--out", folder)
    assert answer.code == 0 and "verified" in answer.out and "BLEU" in answer.out
    assert vitrail("evaluate", folder, "--data", write_pairs(tmp_path / "pairs.tsv"), "--json").code == 0
    for words in (
        [model, "--to", "ctranslate2", "--merge", "4"],
        [model, "--to", "ctranslate2", "--image-size", "any"],
        [model, "--to", "onnx"],
        [run.folder, "--to", "ctranslate2"],
        [folder, "--to", "ctranslate2"],
    ):
        assert vitrail("export", *words).code == 2


def test_a_translator_is_converted_to_marian_and_back(vitrail, translated_run, tmp_path):
    assert vitrail("convert", translated_run.folder, tmp_path / "marian").code == 0
    assert json.loads((tmp_path / "marian" / "config.json").read_text())["model_type"] == "marian"
    assert vitrail("convert", tmp_path / "marian", tmp_path / "own", "--layout", "vitrail").code == 0
    assert vitrail("convert", tmp_path / "own", tmp_path / "x", "--heads", 2).code == 2
    assert vitrail("convert", tmp_path / "own", tmp_path / "x", "--layout", "timm").code == 2
    assert vitrail("evaluate", tmp_path / "marian", "--data", write_pairs(tmp_path / "pairs.tsv")).code == 0


def test_sentences_are_checked_and_shown_as_sentences(vitrail, tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    languages = ("--source", "en", "--target", "de")
    checked = vitrail("data", "check", file, *languages)
    assert checked.code == 0 and "train 77, val 4, test 4" in checked.out and "image" not in checked.out
    assert "en 3, at most 3" in checked.out and checked.out.endswith("no faults\n")
    assert json.loads(vitrail("data", "check", file, *languages, "--json").out)["sentences"] == 85
    shown = vitrail("data", "show", file, *languages, "--task", "translate", "--count", 2)
    name, source, target, *others = shown.out.splitlines()
    assert shown.code == 0 and len(others) == 3 and name.startswith("pairs.tsv:")
    assert [WORDS[word] for word in source.split()[1:]] == target.split()[1:] and source.split()[0] == "en"
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


def test_lines_that_are_no_pair_are_listed_ten_a_kind_and_notes_where_they_are_to_be_skipped(vitrail, tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    file.write_text(file.read_text() + "a\t\n" * 14 + "a\tb\tc\n" * 3)
    command = ("data", "check", file, "--source", "en", "--target", "de")
    checked = vitrail(*command)
    lines = [line.split("  ")[0] for line in checked.out.splitlines()]
    assert checked.code == 3 and lines.count("no-translation") == 11 and lines.count("bad-row") == 3
    assert "no-translation  and 4 more" in checked.out and "17 faults" in checked.out and "left out" not in checked.out
    skipped = vitrail(*command, "--bad-lines", "skip")
    assert skipped.code == 0 and "left out: 17 lines that are no pair (14: there is no translation; 3: " in skipped.out
    assert len(json.loads(vitrail(*command, "--json").out)["faults"]) == 17
    wrong = vitrail(*command, "--bad-lines", "maybe")
    assert wrong.code == 2 and "'stop' or 'skip'" in wrong.err
    stopped = vitrail("train", "--task", "translate", "--data", file, *command[3:], "--out", tmp_path / "run")
    assert stopped.code == 3 and "--bad-lines skip" in stopped.err
    of_images = vitrail("train", "--data", "digits", "--bad-lines", "skip", "--out", tmp_path / "run")
    assert of_images.code == 2 and "--task translate" in of_images.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check"], "--source en --target de"),
        (["show"], "--source en --target de"),
        (["check", "--source", "en"], "one language of two"),
        (["check", "--source", "en", "--target", "de", "--model", "m"], "--model"),
        (["show", "--source", "en", "--target", "de", "--augmentation.erasing", "1"], "--augmentation.erasing"),
    ],
)
def test_what_is_missing_to_look_at_sentences_or_means_nothing_for_them_is_told(vitrail, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    command, *flags = words
    answer = vitrail("data", command, write_pairs(tmp_path / "pairs.tsv"), *flags)
    assert answer.code in (2, 3) and said in answer.err


@pytest.mark.parametrize("words", [("--batch-size", 8), ("--workers", 2)])
def test_what_is_said_of_images_is_refused_where_a_translator_is_evaluated(vitrail, translated_run, words):
    answer = vitrail("evaluate", translated_run.folder, *words)
    assert answer.code == 2 and words[0] in answer.err
