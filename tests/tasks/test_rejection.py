"""“None of these”: a threshold from the validation images, kept with the model, and used where it is asked for."""

import csv
import json
import shutil
from dataclasses import replace

import pytest
import torch

import vitrail
from vitrail import api
from vitrail.deploy.predict import open_predictor
from vitrail.errors import ConfigError
from vitrail.tasks.classification.labels.single_label import rejection_threshold
from vitrail.weights.model_folder.classifier_output import Labelled
from vitrail.weights.model_folder.folder import keep_thresholds


@pytest.mark.parametrize(("count", "accepted"), [(1, 1), (3, 3), (20, 19), (100, 95), (101, 96)])
def test_the_threshold_is_the_highest_that_95_percent_of_the_images_reach(count, accepted):
    sureness = torch.rand(count, generator=torch.Generator().manual_seed(count)) / 2 + 0.5
    bound = rejection_threshold(torch.stack([sureness, 1 - sureness], dim=1))
    assert (sureness >= bound).sum() == accepted and bound in sureness


@pytest.mark.parametrize("reject", [False, True])
def test_an_image_is_rejected_by_the_threshold_of_its_surest_label_alone_and_where_it_is_asked_for(reject):
    model = Labelled()
    model.labels, model.multi_label, model.thresholds, model.reject = ["a", "b"], False, (0.8, 0.9), reject
    found = model.answers(torch.tensor([[0.85, 0.15], [0.15, 0.85], [0.1, 0.9]]), 2)
    assert [[label for label, _ in answer.accepted] for answer in found] == [["a"], [] if reject else ["b"], ["b"]]
    assert [answer.best[0][0] for answer in found] == ["a", "b", "b"]
    assert ("labels" in found[1].to_json("x", several=model.may_tell_none)) == reject


@pytest.fixture(scope="module")
def bounded(run, pictures, tmp_path_factory):
    """The model of a run with a threshold that about half of its images do not reach, the images, and which do."""
    folder = shutil.copytree(run.folder / "best", tmp_path_factory.mktemp("bounded") / "model")
    images = sorted(pictures.rglob("*.png"))
    sureness = [answer[0][1] for answer in vitrail.predict(folder, images)]
    bound = (sorted(sureness)[len(sureness) // 2 - 1] + sorted(sureness)[len(sureness) // 2]) / 2
    config = json.loads((folder / "config.json").read_text())
    keep_thresholds(folder, [bound] * len(config["id2label"]))
    return folder, images, [score >= bound for score in sureness]


def test_a_run_keeps_the_threshold_of_its_validation_images_and_shows_what_it_does(run, pictures):
    thresholds = json.loads((run.folder / "best" / "config.json").read_text())["thresholds"]
    trained = vitrail.open_model(run.folder)
    assert list(trained.thresholds) == thresholds and len(set(thresholds)) == 1 and len(thresholds) == len(trained.labels)
    sureness = [answer[0][1] for answer in vitrail.predict(trained, [i.image for i in vitrail.open_data(pictures).split("val")])]
    assert sum(score >= thresholds[0] - 1e-6 for score in sureness) >= 0.95 * len(sureness)
    page = (run.folder / "report.html").read_text()
    assert "Rejection" in page and "--reject, from the validation images" in page and "softmax" in page


def test_predictions_of_rejected_images_are_none_where_that_is_asked_for(bounded):
    folder, images, accepted = bounded
    assert 0 < sum(accepted) < len(images)
    for top in (None, 2):
        assert [bool(answer) for answer in vitrail.predict(folder, images, top=top, reject=True)] == accepted
        assert all(vitrail.predict(folder, images, top=top))


def test_the_command_says_none_of_these_in_lines_tables_json_and_folders(bounded, vitrail, tmp_path):
    folder, images, accepted = bounded
    answer = vitrail("predict", folder, *images, "--reject", "--csv", tmp_path / "out.csv", "--sort-into", tmp_path / "sorted")
    assert ["none of these (" in line for line in answer.out.splitlines()] == [not known for known in accepted]
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["accepted"] == "yes" for row in rows] == accepted and all(row["label"] for row in rows)
    assert len(list((tmp_path / "sorted" / "none").iterdir())) == accepted.count(False)
    found = json.loads(vitrail("predict", folder, *images, "--reject", "--json").out)
    assert [bool(one["labels"]) for one in found] == accepted and all(one["predictions"] for one in found)
    plain = vitrail("predict", folder, *images, "--json").out
    assert "labels" not in json.loads(plain)[0]


def test_an_export_keeps_the_threshold(bounded, tmp_path):
    folder, images, accepted = bounded
    graph, _ = api.export(folder, tmp_path / "graph", to="onnx")
    assert [bool(answer) for answer in vitrail.predict(graph, images, reject=True)] == accepted


def test_a_model_without_a_threshold_and_one_of_several_labels_refuse_to_reject(bounded):
    predictor = open_predictor(bounded[0], images=1)
    with pytest.raises(ConfigError, match="no threshold"):
        replace(predictor, thresholds=()).rejecting()
    with pytest.raises(ConfigError, match="may give an image no label"):
        replace(predictor, multi_label=True).rejecting()
