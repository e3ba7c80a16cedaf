"""``vitrail study``."""

import json

import pytest

from stick_figures import write_people
from tiny_pose import tiny_pose


def test_study_gives_its_numbers_as_one_document(vitrail, run, pictures, tmp_path):
    answer = vitrail("study", run.folder, "--data", pictures, "--out", tmp_path / "out", "--images", 6, "--json")
    document = json.loads(answer.out)
    assert document.pop("folder") == str(tmp_path / "out")
    assert document == json.loads((tmp_path / "out" / "study.json").read_text())


def test_study_draws_the_attention_that_is_asked_for(vitrail, run, pictures, tmp_path):
    words = ["--data", pictures, "--images", 3]
    answer = vitrail("study", run.folder, *words, "--layer", 0, "--head", 1, "--query", 1, 0, "--out", tmp_path / "asked")
    assert answer.code == 0
    page = (tmp_path / "asked" / "report.html").read_text()
    assert "layer 0, head 1, from the patch in row 1, column 0" in page


def test_study_takes_the_data_of_a_run_and_names_its_folder_itself(vitrail, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = vitrail("study", run.folder, "--images", 3)
    assert answer.code == 0
    (folder,) = (tmp_path / "studies").iterdir()
    assert folder.name.startswith("colours-")
    assert (folder / "study.json").is_file() and f"{folder.name}/report.html" in answer.out and "accuracy  " in answer.out
    assert "<h1>colours on pictures</h1>" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--images", "0"], 2, "--images is 0"),
        (["--images", "1.5"], 2, "no whole number"),
        (["--split", "best"], 2, "best"),
        (["--layer", "7"], 2, "layer 7 of 1"),
        (["--query", "0", "2"], 2, "column 2 of 2"),
        (["--data", "nowhere"], 3, "no data at 'nowhere'"),
    ],
)
def test_what_cannot_be_studied_is_refused(vitrail, run, tmp_path, words, code, said):
    answer = vitrail("study", run.folder, "--out", tmp_path / "out", *words)
    assert answer.code == code
    assert said in answer.err
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there_has_the_exit_code_of_models(vitrail, pictures, tmp_path):
    assert vitrail("study", tmp_path / "nothing", "--data", pictures, "--out", tmp_path / "out").code == 4


def test_study_of_joints_takes_people_and_draws_the_joints_that_are_asked_for(vitrail, tmp_path):
    tiny_pose().save_pretrained(tmp_path / "model")
    (tmp_path / "people").mkdir()
    words = ["study", tmp_path / "model", "--data", write_people(tmp_path / "people", 3), "--split", "all"]
    answer = vitrail(*words, "--joint", "head", "--joint", "left_hand", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "of 3 people" in answer.out and (tmp_path / "out" / "queries.png").is_file()
    answer = vitrail(*words, "--joint", "left_hnad", "--out", tmp_path / "none")
    assert answer.code == 2 and "did you mean 'left_hand'?" in answer.err
    assert not (tmp_path / "none").exists()
