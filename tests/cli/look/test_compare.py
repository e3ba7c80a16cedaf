"""``vitrail compare`` and ``vitrail sweep``."""

import json

import pytest


def test_compare_prints_runs_and_the_settings_that_differ(vitrail, run, tmp_path):
    answer = vitrail("compare", run.folder, run.folder)
    assert answer.code == 0
    assert "score " in answer.out and "setting" not in answer.out
    document = json.loads(vitrail("compare", run.folder, "--json").out)
    assert document["runs"][0]["scores"]["top1"] == pytest.approx(run.scores["top1"])


def test_compare_writes_a_page(vitrail, run, tmp_path):
    answer = vitrail("compare", run.folder, "--out", tmp_path / "out")
    assert answer.code == 0 and str(tmp_path / "out" / "report.html") in answer.err
    assert (tmp_path / "out" / "report.html").is_file()
    assert vitrail("compare", run.folder, "--out", tmp_path / "out").code == 2
    assert vitrail("compare", tmp_path).code == 4
    assert vitrail("compare").code == 2


@pytest.mark.usefixtures("unreported")
def test_sweep_prints_a_table(vitrail, pictures, tiny_flags, tmp_path):
    words = ["--data", pictures, "--out", tmp_path / "out", "--over", "model.depth=1,2", *tiny_flags]
    words = [word for word in words if word not in ("--model.depth", "1")]
    answer = vitrail("sweep", *words, "--over", "seed=0,1")
    assert answer.code == 0
    assert answer.out.startswith("model.depth")
    assert len(answer.out.splitlines()) == 4
    assert "run 4 of 4: depth=2,seed=1" in answer.err
    again = json.loads(vitrail("sweep", *words, "--over", "seed=0,1", "--json").out)
    assert again[0]["settings"] == {"model.depth": 1, "training.seed": 0}


@pytest.mark.parametrize(
    ("over", "said"),
    [("model.depth", "has no values"), ("model.deepness=1", "unknown setting"), ("model.depth=1,1", "once")],
)
def test_a_sweep_that_makes_no_sense_is_refused(vitrail, pictures, tmp_path, over, said):
    answer = vitrail("sweep", "--data", pictures, "--out", tmp_path / "out", "--over", over)
    assert answer.code == 2 and said in answer.err
    assert not (tmp_path / "out").exists()
