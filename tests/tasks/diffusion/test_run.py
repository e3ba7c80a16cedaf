"""A run of diffusion from the command to its evaluation and report."""

import json

import numpy as np
import pytest

from tiny_diffusion import TINY
from vitrail import api
from vitrail.cli.app import main
from vitrail.config.configuration import nested
from vitrail.errors import DataError
from vitrail.tasks.diffusion.task import Noisy
from vitrail.training.run_data import run_data_of
from vitrail.training.runs import setup


@pytest.fixture(scope="module")
def made_run(pictures, tmp_path_factory):
    return api.train(pictures, tmp_path_factory.mktemp("run") / "run", task="diffusion", **TINY)


def command(*words):
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
        raise SystemExit(0)
    return end.value.code


def test_a_run_ends_with_a_report_that_shows_samples(made_run):
    assert "loss" in made_run.scores
    page = (made_run.folder / "report.html").read_text()
    assert "Samples" in page and (made_run.folder / "plots" / "samples.png").exists()


def test_evaluation_has_each_figure_beside_its_floor(made_run, capsys):
    assert command("evaluate", made_run.folder, "--count", 8, "--steps", 2, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert {"frechet", "kernel", "precision", "recall", "nearest_training_image"} == scores["floor"].keys() and scores["loss"] > 0
    assert command("evaluate", made_run.folder, "--count", 8, "--steps", 2) == 0
    assert "real images:" in capsys.readouterr().out
    metrics, _ = api.evaluate(made_run.folder, count=0)
    assert metrics.scores().keys() == {"loss", "images"}
    assert command("evaluate", made_run.folder, "--boxes", "x.json") == 4 or "boxes" in capsys.readouterr().err


def test_a_classifier_says_which_class_a_sample_shows(made_run, run):
    metrics, _ = api.evaluate(made_run.folder, count=8, steps=2, classifier=str(run.folder))
    assert 0 <= metrics.scores()["agreement"] <= 1


def test_classes_are_left_out_where_settings_say_so_and_where_data_has_none(pictures, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, file in enumerate(sorted(pictures.rglob("*.png"))):
        (flat / f"{number}.png").write_bytes(file.read_bytes())
    for data, more, classes in ((pictures, {}, True), (pictures, {"task.classes": False}, False), (flat, {}, False)):
        settings, start = setup.resolve_run(None, None, nested({"data": str(data), "task": "diffusion", **TINY, **more}))
        inputs = run_data_of(settings)
        source = inputs.open_source(settings)
        assert bool(inputs.complete(settings, source, start).model.config.num_classes) is classes


def test_noise_and_time_of_an_image_follow_from_its_own_generator():
    targets = Noisy((1, 8, 8), 0, dropped=0.5)
    one, same, other = (targets(None, None, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one) and not np.array_equal(one["noise"], other["noise"])
    assert one["noise"].shape == (1, 8, 8) and 0 <= one["times"] < 1


def test_images_with_several_labels_are_refused(tmp_path, pictures):
    lines = ["image,label", *(f"{file},a;b" for file in sorted(pictures.rglob("*.png")))]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="several labels"):
        api.train(tmp_path / "labels.csv", tmp_path / "run", task="diffusion", **TINY)
