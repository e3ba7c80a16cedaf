"""A run of diffusion from the command to its evaluation and report."""

import json
import math
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import vitrail
from tiny_diffusion import TINY
from vitrail import api
from vitrail.cli.app import main
from vitrail.config.configuration import nested
from vitrail.data.readers.sources import open_data
from vitrail.errors import ConfigError, DataError
from vitrail.tasks.diffusion.quality.distances import figures, pixel_vectors
from vitrail.tasks.diffusion.quality.real_images import RealImages
from vitrail.tasks.diffusion.report import COLUMNS, SHOWN, samples
from vitrail.tasks.diffusion.sampling.making import open_diffusion
from vitrail.tasks.diffusion.task import Noisy
from vitrail.tasks.evaluation import Request
from vitrail.training.run_data import run_data_of
from vitrail.training.runs import setup
from vitrail.training.runs.run import best_task
from vitrail.training.runs.run_folder import RunFolder


@pytest.fixture(scope="module")
def made_run(pictures, tmp_path_factory):
    return api.train(pictures, tmp_path_factory.mktemp("run") / "run", task="diffusion", **TINY)


def command(*words):
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
        raise SystemExit(0)
    return end.value.code


def test_a_run_ends_with_a_report_of_samples_their_growth_copies_and_the_loss_by_time(made_run):
    assert "loss" in made_run.scores
    page = (made_run.folder / "report.html").read_text()
    for title in ("Samples", "Growth", "Copies", "Loss by time"):
        assert f"<h2>{title}</h2>" in page
    held_out, learned = map(int, re.search(r"of (\d+) real images that.* (\d+) training images were compared", page).groups())
    assert held_out + learned == 24 and learned == 16
    assert "learned without labels" not in page


def test_a_report_makes_as_many_samples_as_there_is_time_for(made_run):
    run = RunFolder.open(made_run.folder)
    _, task = best_task(run, run.settings, open_data(run.settings.data.source))
    row = {"seconds": 1.0}
    for seconds, count in ((math.inf, SHOWN), (0.0, COLUMNS)):
        pictures, names = samples(task, SimpleNamespace(seconds=seconds, rows=[row]))
        assert len(pictures) == len(names) == count and set(names) == {"red", "green", "blue"}


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


def test_the_agreement_of_a_classifier_stands_beside_its_accuracy(made_run, run):
    metrics, _ = api.evaluate(made_run.folder, count=8, steps=2, classifier=str(run.folder))
    assert metrics.details()["floor"]["agreement"] == 1  # the colours are easy
    other = vitrail.TrainedModel(run.trained.model, ["red", "green", "yellow"], run.trained.preparation)
    other.save_pretrained(made_run.folder.parent / "yellow")
    with pytest.raises(ConfigError, match="does not know the class 'blue'"):
        api.evaluate(made_run.folder, count=8, classifier=str(made_run.folder.parent / "yellow"))


def test_the_floor_is_that_of_as_many_real_images_of_two_sets(made_run, pictures):
    trained = open_diffusion(made_run.folder)
    real = RealImages.open(Request(None, made_run.folder, None, None, None, print), RunFolder.open(made_run.folder), trained)
    first, second = real.two_sets(9)
    assert len(first) == len(second) == 9 and not {item.name for item in first} & {item.name for item in second}
    assert {item.name for item in first} <= {item.name for item in real.learned}
    metrics, _ = api.evaluate(made_run.folder, count=9, steps=2)
    vectors = [pixel_vectors([item.image for item in items], trained.preparation) for items in (first, second)]
    floor = metrics.details()["floor"]
    assert {name: floor[name] for name in figures(*vectors)} == pytest.approx(figures(*vectors))


@pytest.fixture
def other(pictures, tmp_path):
    """Other images of the same classes."""
    random = np.random.default_rng(1)
    for file in pictures.rglob("*.png"):
        place = tmp_path / "other" / file.parent.name / f"new-{file.name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (10, 10, 3), dtype=np.uint8)).save(place)
    return tmp_path / "other"


def test_copies_are_searched_among_the_images_of_the_run_whatever_the_data(made_run, other):
    own, _ = api.evaluate(made_run.folder, count=9, steps=2)
    metrics, _ = api.evaluate(made_run.folder, other, count=9, steps=2)
    details, expected = metrics.details(), own.details()
    assert details["copies"] == expected["copies"] and len(details["copies"]) == 9
    assert not any("new-" in row["training_image"] for row in details["copies"])
    assert details["nearest_training_image"] == expected["nearest_training_image"]
    assert details["frechet"] != expected["frechet"] and details["floor"]["frechet"] != expected["floor"]["frechet"]


def test_distances_need_the_data_of_the_run_for_copies_alone(pictures, other, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "write_report", lambda finished: None)
    data = shutil.copytree(pictures, tmp_path / "data")
    folder = api.train(data, tmp_path / "run", task="diffusion", **{**TINY, "training.epochs": 1}).folder
    shutil.rmtree(data)
    notes = []
    metrics, _ = api.evaluate(
        folder, other, count=9, steps=2, observer=SimpleNamespace(note=notes.append, begin=print, advance=print)
    )
    assert "nearest_training_image" not in metrics.scores() and metrics.details()["copies"] == []
    assert any("copies are not searched for" in note for note in notes)
    with pytest.raises(DataError):
        api.evaluate(folder, count=9, steps=2)


def test_images_that_the_run_has_left_out_are_left_out_of_its_evaluation(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "write_report", lambda finished: None)
    data = shutil.copytree(pictures, tmp_path / "data")
    bad = sorted(data.rglob("*.png"))[0]
    settings = {**TINY, "training.epochs": 1, "data.bad_images": "skip"}
    bad.write_bytes(bad.read_bytes()[:90])
    folder = api.train(data, tmp_path / "run", task="diffusion", **settings).folder
    assert list(json.loads((folder / "bad_images.json").read_text()))
    metrics, _ = api.evaluate(folder, count=9, steps=2, split="all")
    assert metrics.scores()["images"] == 23


def test_bits_per_dimension_are_counted_where_a_variance_is_learned(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "write_report", lambda finished: None)
    learned = {"model.learned_variance": True, "model.objective": "velocity", "model.steps": 20}
    folder = api.train(pictures, tmp_path / "run", task="diffusion", **{**TINY, **learned}).folder
    metrics, _ = api.evaluate(folder, count=8, steps=2, bits=3)
    assert 0 < metrics.scores()["bits_per_dimension"] < 60
    assert "bits_per_dimension" not in api.evaluate(folder, count=8, steps=2, bits=0)[0].scores()


def test_the_nearest_are_drawn_where_a_folder_is_named(made_run, tmp_path, capsys):
    assert command("evaluate", made_run.folder, "--count", 8, "--steps", 2, "--pictures", tmp_path / "drawn") == 0
    assert Image.open(tmp_path / "drawn" / "copies.png").width > 500
    assert command("evaluate", made_run.folder, "--count", 8, "--pictures", tmp_path / "drawn") == 2
    assert command("evaluate", made_run.folder, "--count", 8, "--guidance", -1) == 2
    assert "--guidance is -1" in capsys.readouterr().err


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


@pytest.mark.parametrize(("size", "expected"), [(8, []), (12, ["16 of 16 training images"])])
def test_images_below_the_size_of_the_model_are_warned_of(pictures, size, expected):
    settings, start = setup.resolve_run(
        None, None, nested({"data": str(pictures), "task": "diffusion", **TINY, "model.image_size": size})
    )
    inputs = run_data_of(settings)
    source = inputs.open_source(settings)
    lines = inputs.warnings(inputs.complete(settings, source, start), source)
    assert [" ".join(line.split()[:5]) for line in lines] == expected


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
