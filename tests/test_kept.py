"""Files of an earlier version keep working: runs resume, models and graphs open and predict the same.

``tests/kept`` was written by the commit before the library was opened for other architectures and tasks, and is never written
anew. Both runs have the same settings and seed; one was interrupted in the middle of its second epoch.
"""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

import vitrail
from vitrail import api
from vitrail.deploy.predict import open_predictor

KEPT = Path(__file__).parent / "kept"


@pytest.fixture
def kept(tmp_path):
    """A copy of what was kept, by name."""

    def copy(name: str) -> Path:
        return shutil.copytree(KEPT / name, tmp_path / name)

    return copy


@pytest.mark.usefixtures("unreported")
def test_an_interrupted_run_goes_on_to_where_the_unbroken_one_came(kept):
    run = api.resume(kept("interrupted"))
    status, unbroken = (json.loads((folder / "status.json").read_text()) for folder in (run.folder, KEPT / "finished"))
    assert (status["state"], status["epoch"], status["step"]) == ("finished", 3, 24)
    rows, theirs = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (run.folder, KEPT / "finished")
    )
    assert [row.keys() for row in rows] == [row.keys() for row in theirs]
    for row, other in zip(rows, theirs, strict=True):  # processors differ in the last bits, which grow in 24 steps
        assert row["lr"] == pytest.approx(other["lr"], rel=1e-6)
        assert row["train_loss"] == pytest.approx(other["train_loss"], abs=1e-3)
        assert row["val_loss"] == pytest.approx(other["val_loss"], abs=1e-3)
    assert run.scores["loss"] == pytest.approx(unbroken["scores"]["loss"], abs=1e-3)


def test_a_finished_run_is_evaluated_on_its_own_images_with_the_same_scores():
    result, split = api.evaluate(KEPT / "finished")
    scores = json.loads((KEPT / "finished" / "status.json").read_text())["scores"]
    assert split == "test" and result.scores() == pytest.approx(scores, abs=1e-4)


@pytest.mark.usefixtures("unreported")
def test_a_finished_run_is_compared_and_fine_tuned(kept, tmp_path):
    run = kept("finished")
    (found,) = api.compare([run], tmp_path / "comparison")
    assert found.state == "finished" and found.scores["images"] == 360
    tuned = api.train("digits", tmp_path / "tuned", start=str(run), fast_dev_run=True, **{"training.tune": "lora"})
    assert tuned.trained.labels == [str(digit) for digit in range(10)]


@pytest.mark.parametrize("name", ["model", "exported"])
def test_a_model_answers_as_it_did(name):
    answers = load_file(KEPT / "answers.safetensors")
    logits = open_predictor(KEPT / name).logits(answers["pixels"])
    assert (logits - answers["logits"]).abs().max() < 1e-4 < answers["logits"].diff(dim=0).abs().min()


def test_a_model_is_written_as_it_was(tmp_path):
    """Fields that were added since have their defaults."""
    opened = vitrail.open_model(KEPT / "model")
    opened.save_pretrained(tmp_path / "model")
    for name in ("config.json", "preprocessor_config.json"):
        ours, theirs = (json.loads((folder / name).read_text()) for folder in (tmp_path / "model", KEPT / "model"))
        assert {key: ours[key] for key in theirs} == theirs
        new = ours.keys() - theirs.keys()
        assert {key: ours[key] for key in new} == {key: type(opened.config).model_fields[key].default for key in new}
    ours, theirs = load_file(tmp_path / "model" / "model.safetensors"), load_file(KEPT / "model" / "model.safetensors")
    assert ours.keys() == theirs.keys() and all((ours[key] == theirs[key]).all() for key in ours)
