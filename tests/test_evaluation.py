"""Evaluations of runs of poses on their own data and on other data."""

import json

import pytest

import vitrail
from stick_figures import write_people
from vitrail import api, evaluation
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError


def test_a_run_is_evaluated_on_its_own_data_split_and_settings_and_repeats_its_scores(pose_run, people):
    for data in (None, people):
        metrics, split = vitrail.evaluate(pose_run.folder, data)
        assert split == pose_run.split and metrics.scores() == pytest.approx(pose_run.scores, abs=1e-5)
    assert vitrail.evaluate(pose_run.folder, split="all")[0].scores()["people"] == 16
    assert vitrail.evaluate(pose_run.folder, mirror=False)[0].scores()["oks"] != pytest.approx(pose_run.scores["oks"], abs=1e-6)


def test_a_model_folder_of_a_run_is_evaluated_on_any_people_in_their_own_boxes(pose_run, people):
    one, split = vitrail.evaluate(pose_run.folder / "best", people)
    assert split == "all" and one.scores()["people"] == 16
    other = write_people(people.parent.parent / people.parent.name, 8, people=2)  # the same once more
    assert vitrail.evaluate(pose_run.folder, other)[1] == pose_run.split


@pytest.fixture(scope="module")
def exported(pose_run, tmp_path_factory):
    return api.export(pose_run.folder, tmp_path_factory.mktemp("exported") / "poses", to="openvino")[0]


def test_an_exported_run_has_the_scores_of_the_model_in_python(pose_run, exported, people):
    assert vitrail.evaluate(exported, people, batch_size=3)[0].scores() == pytest.approx(
        vitrail.evaluate(pose_run.folder / "best", people)[0].scores(), abs=1e-3
    )
    with pytest.raises(ConfigError, match="no data given"):
        vitrail.evaluate(exported)


def test_boxes_are_looked_up_by_the_numbers_and_names_of_the_pictures_of_the_split(pose_run, people, tmp_path):
    annotations = json.loads(people.read_text())["annotations"]
    names = {True: lambda n: {"image": f"{n}.png"}, False: lambda n: {"image_id": n}}
    rows = [{**names[a["id"] % 2 == 0](a["image_id"]), "bbox": a["bbox"], "score": 0.9} for a in annotations]
    (tmp_path / "boxes.json").write_text(json.dumps(rows))
    metrics, split = vitrail.evaluate(pose_run.folder, boxes=tmp_path / "boxes.json")
    scores = metrics.scores()
    assert split == pose_run.split and scores["people"] == pose_run.scores["people"]
    assert scores["boxes"] == pose_run.scores["people"]  # some boxes of a picture are told by its name, others by its number


@pytest.mark.parametrize("size", [{"batch_size": 0}, {"batch_size": -1}, {"workers": -1}])
def test_a_size_that_is_none_is_refused(run, size):
    with pytest.raises(ConfigError, match=f"{next(iter(size))} is {next(iter(size.values()))}"):
        vitrail.evaluate(run.folder, **size)


@pytest.fixture
def workers_requested(monkeypatch):
    """Return the workers of every loader, on a machine where one process reads images beside a GPU."""
    requested, init = [], EpochLoader.__init__

    def asking(self, *args, **named):
        requested.append(named["workers"])
        init(self, *args, **named)

    monkeypatch.setattr(evaluation, "workers_beside", lambda device: 1)
    monkeypatch.setattr(EpochLoader, "__init__", asking)
    return requested


def test_processes_read_images_where_a_gpu_computes_unless_it_is_said_how_many(run, pose_run, people, workers_requested):
    for workers in (None, 0, 2):
        vitrail.evaluate(run.folder, workers=workers)
    vitrail.evaluate(pose_run.folder, people)
    assert workers_requested == [1, 0, 2, 1]


def test_beside_an_engine_no_processes_read_images(exported, people, workers_requested):
    vitrail.evaluate(exported, people)
    assert workers_requested == [0]


def test_people_in_boxes_are_read_by_this_process_beside_a_gpu_too(pose_run, people, workers_requested):
    vitrail.evaluate(pose_run.folder, people, boxes=people)
    assert not workers_requested


def test_the_table_may_be_named_by_a_text(run, tmp_path):
    vitrail.evaluate(run.folder, table=str(tmp_path / "table.csv"))
    assert (tmp_path / "table.csv").is_file()
    with pytest.raises(ConfigError, match="exists"):
        vitrail.evaluate(run.folder, table=str(tmp_path / "table.csv"))
