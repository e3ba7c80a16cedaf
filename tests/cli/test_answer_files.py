"""What commands write of their answers: tables, and images sorted into folders."""

import csv
import json

import pytest


def table(file):
    with file.open(encoding="utf-8-sig", newline="") as lines:
        return list(csv.DictReader(lines))


def test_predict_writes_a_row_for_each_image_and_copies_it_to_its_label(vitrail, run, pictures, tmp_path):
    answer = vitrail(
        "predict", run.folder, pictures, "--csv", tmp_path / "a.csv", "--sort-into", tmp_path / "out", "--json", "--top", 2
    )
    answers = json.loads(answer.out)
    rows = table(tmp_path / "a.csv")
    assert [row["image"] for row in rows] == [one["image"] for one in answers] and len(rows) == 24
    for row, one in zip(rows, answers, strict=True):
        assert [row["label"], row["label_2"]] == [each["label"] for each in one["predictions"]]
        assert float(row["score"]) == pytest.approx(one["predictions"][0]["score"], abs=1e-6)
    count = {folder.name: len(list(folder.iterdir())) for folder in (tmp_path / "out").iterdir()}
    assert count == {label: sum(row["label"] == label for row in rows) for label in count} and sum(count.values()) == 24
    assert all(f"{images} {label}" in answer.err for label, images in count.items())


def test_evaluate_writes_a_row_for_each_image_that_agrees_with_its_score(vitrail, run, pictures, tmp_path):
    scores = json.loads(vitrail("evaluate", run.folder, "--split", "all", "--csv", tmp_path / "a.csv", "--json").out)
    rows = table(tmp_path / "a.csv")
    assert all((pictures / row["image"]).is_file() and row["image"].startswith(row["true_label"]) for row in rows)
    assert all((row["true_label"] == row["label"]) == (row["correct"] == "yes") for row in rows)
    assert sum(row["correct"] == "yes" for row in rows) / len(rows) == pytest.approx(scores["top1"])


@pytest.mark.parametrize("words", [("embed", "--out", "x/y.npz"), ("predict", "--csv", "x/a.csv")])
def test_a_place_that_cannot_be_written_to_is_told_first(vitrail, tmp_path, monkeypatch, words):
    (tmp_path / "weights.safetensors").touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    command, flag, name = words
    answer = vitrail(command, tmp_path / "weights.safetensors", tmp_path, flag, tmp_path / name)
    assert answer.code == 2 and "no permission to write to" in answer.err and flag in answer.err


@pytest.mark.parametrize(
    "words",
    [("predict", "RUN", "PICTURES", "--csv"), ("predict", "RUN", "PICTURES", "--sort-into"), ("evaluate", "RUN", "--csv")],
    ids=" ".join,
)
def test_nothing_that_exists_is_overwritten(vitrail, run, pictures, tmp_path, words):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    named = {"RUN": run.folder, "PICTURES": pictures}
    answer = vitrail(*(named.get(word, word) for word in words), taken)
    assert (answer.code, answer.out, taken.read_text()) == (2, "", "mine")
    assert "exists" in answer.err and words[-1] in answer.err


@pytest.mark.parametrize("flag", ["--sort-into", "--pictures"])
def test_a_table_inside_a_folder_that_is_to_be_made_is_refused_before_any_work(vitrail, tmp_path, flag):
    (tmp_path / "weights.safetensors").touch()
    words = ["--csv", tmp_path / "new" / "a.csv", flag, tmp_path / "new"]
    answer = vitrail("predict", tmp_path / "weights.safetensors", tmp_path, *words)
    assert answer.code == 2 and "which will be created" in answer.err and "where: --csv" in answer.err
