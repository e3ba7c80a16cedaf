"""A study of a model that finds joints: its data, its pictures and its page."""

import json
import re

import numpy as np
import pytest
import torch

import vitrail
from stick_figures import JOINTS, write_people
from test_contract import tiny
from tiny_pose import tiny_pose
from vitrail.data.loading.sampler import shuffled
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.study.sections.request import StudyRequest
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.predictor import in_python
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.study.joints import joint_maps
from vitrail.tasks.pose.study.sections import write_study
from vitrail.tasks.pose.study.study_people import PoseStudy, StudiedPeople


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("people"), 4, people=2)


@pytest.fixture(scope="module")
def study(people, tmp_path_factory):
    return vitrail.study_model(tiny_pose(depth=2), people, tmp_path_factory.mktemp("studies") / "made", split="all", images=5)


def test_maps_and_heatmaps_of_all_people_and_joints_are_kept(study, people):
    folder, numbers = study
    maps, trained = np.load(folder / "maps.npz"), tiny_pose(depth=2)
    chosen = [open_people(people).split("all")[i] for i in sorted(shuffled(8, 0, 0)[:5])]
    assert maps["images"].tolist() == [person.name for person in chosen]
    assert numbers["images"] == 5 and numbers["of"] == "people"
    pixels = [
        trained.preparation.plan_of((60, 48), person.target.box).pixels(trained.preparation.decode(person.image))
        for person in chosen
    ]
    expected, heatmaps = joint_maps(trained.model, trained.preparation.normalize(torch.from_numpy(np.stack(pixels))))
    assert np.allclose(maps["joints"], expected.numpy(), atol=1e-5)
    assert np.allclose(maps["heatmaps"], heatmaps.detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("mirror", [True, False])
def test_scores_are_the_scores_of_an_evaluation_with_mirror_images_or_without(people, tmp_path, mirror):
    source, settings = open_people(people), PoseSettings(mirror=mirror)
    subjects = StudiedPeople(source.split("all"), "all", labelled=True, mirror=mirror)
    (tmp_path / "all").mkdir()
    numbers = write_study(tmp_path / "all", tiny_pose(depth=2), subjects, StudyRequest(), title="all")
    expected = in_python(tiny_pose(depth=2)).evaluation(source.split("all"), settings, batch_size=3).run().scores()
    found = numbers["scores"]
    assert found["people"] == 8 and "loss" not in found
    assert {name: expected[name] for name in found} == pytest.approx(found)


def test_sections_that_make_sense_are_there_and_the_others_are_named(study):
    folder, numbers = study
    text = (folder / "report.html").read_text()
    shown = re.findall("<h2>([^<]*)</h2>", text)
    assert shown[:3] == ["Where the joints are", "Where a joint&#x27;s query looks", "Do joints look at each other"]
    assert {"How far it looks", "Positions", "Filters", "What is left out", "Cost"} <= set(shown)
    assert "no rollout, no relevance" in text and "no classes" in text
    assert "Probes" not in shown
    assert not re.findall(r"<script|src=.http|href=.http", text)
    assert json.loads((folder / "study.json").read_text()) == numbers
    assert np.array(numbers["between_joints"]).shape == (7, 7)
    assert list(numbers["mean_scores"]) == list(JOINTS)
    assert {file.name for file in folder.glob("*.png")} == {
        *("heatmaps.png", "queries.png", "between.png", "distances.png", "positions.png", "filters.png"),
    }


@pytest.mark.parametrize("sizes", [(), (0.75,)])
def test_people_are_studied_as_they_are_turned_upright_and_joints_are_where_predictions_have_them(people, tmp_path, sizes):
    trained = tiny_pose(depth=2, upright=True, smaller_sizes=sizes, image_size=(64, 64))
    chosen = open_people(people).split("all")
    study = PoseStudy(tmp_path, trained, StudiedPeople(chosen, labelled=True), Observer(), layer=-1, head=None)
    assert len(set(study.turns.tolist())) > 1
    for number, person in enumerate(chosen):
        ((found,),) = vitrail.predict_poses(trained, person.image, [person.target.box])
        assert np.allclose(study.outside(number), found.joints, atol=0.2)  # heatmaps are read turned, or as they are
        view, plan = study.view(number, 64)
        assert np.abs(np.asarray(view).astype(float) - study.pixels[number].permute(1, 2, 0).numpy()).mean() < 2
        assert np.allclose(plan.points(study.outside(number) + 0.5) - 0.5, study.joints[number], atol=1e-6)


def test_images_without_joints_are_one_person_each_and_have_no_scores(people, tmp_path):
    folder, numbers = vitrail.study_model(tiny_pose(depth=2), people.parent, tmp_path / "plain", images=2, joints=["head"])
    assert numbers["images"] == 2 and "scores" not in numbers
    assert (folder / "queries.png").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"joints": ("hed",)}, "unknown joint 'hed'"),
        ({"layer": 9}, "layer 9 of 2"),
        ({"query": (0, 0)}, "where the model finds a joint"),
    ],
)
def test_what_there_is_not_is_refused_and_leaves_no_folder(people, tmp_path, options, said):
    with pytest.raises(ConfigError, match=said):
        vitrail.study_model(tiny_pose(depth=2), people, tmp_path / "none", split="all", **options)
    assert not (tmp_path / "none").exists()


def test_a_model_of_classes_has_no_joints_to_choose(people, tmp_path):
    model = tiny("ViT").eval()
    trained = vitrail.TrainedModel(model, list("ab"), vitrail.Preparation.standard(model.config.image_size))
    with pytest.raises(ConfigError, match="finds no joints"):
        vitrail.study_model(trained, people.parent, tmp_path / "none", joints=["head"])


def test_people_with_other_joints_are_refused(tmp_path, people):
    values = json.loads(people.read_text())
    values["categories"][0]["keypoints"] = [f"{name} x" for name in JOINTS]
    other = people.with_name("other.json")
    other.write_text(json.dumps(values))
    with pytest.raises(DataError, match="the data has the joints head x"):
        vitrail.study_model(tiny_pose(depth=2), other, tmp_path / "none")
    other.unlink()
