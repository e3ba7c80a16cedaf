"""Evaluations of runs on people, on the data that they come with."""

import json

import pytest

import vitrail
from stick_figures import write_people
from tiny_pose import FIELDS
from vitrail import api, evaluation
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError

ASK = {
    "task": "pose", "model.name": "ViTPose-Ti-simple", **{f"model.{name}": value for name, value in FIELDS.items()},
    "training.batch_size": 8, "training.epochs": 1, "task.smoothing": 1.0, "task.boxes": "joints",
}  # fmt: skip


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("people"), 8, people=2)


@pytest.fixture(scope="module")
def found(people, tmp_path_factory):
    """A finished run; tests must leave it as it is."""
    return api.train(people, tmp_path_factory.mktemp("runs") / "people", **ASK)


def test_a_run_is_evaluated_on_its_own_data_split_and_settings_and_repeats_its_scores(found, people):
    for data in (None, people):
        metrics, split = vitrail.evaluate(found.folder, data)
        assert split == found.split and metrics.scores() == pytest.approx(found.scores, abs=1e-5)
    assert vitrail.evaluate(found.folder, split="all")[0].scores()["people"] == 16
    assert vitrail.evaluate(found.folder, mirror=False)[0].scores()["oks"] != pytest.approx(found.scores["oks"], abs=1e-6)


def test_a_model_folder_of_a_run_is_evaluated_on_any_people_in_their_own_boxes(found, people):
    one, split = vitrail.evaluate(found.folder / "best", people)
    assert split == "all" and one.scores()["people"] == 16
    other = write_people(people.parent.parent / people.parent.name, 8, people=2)  # the same once more
    assert vitrail.evaluate(found.folder, other)[1] == found.split


def test_an_exported_run_has_the_scores_of_the_model_in_python(found, people, tmp_path):
    folder, _ = api.export(found.folder, tmp_path / "out", to="openvino")
    assert vitrail.evaluate(folder, people, batch_size=3)[0].scores() == pytest.approx(
        vitrail.evaluate(found.folder / "best", people)[0].scores(), abs=1e-3
    )
    with pytest.raises(ConfigError, match="no data given"):
        vitrail.evaluate(folder)


def test_boxes_are_looked_up_by_the_numbers_and_names_of_the_pictures_of_the_split(found, people, tmp_path):
    annotations = json.loads(people.read_text())["annotations"]
    names = {True: lambda n: {"image": f"{n}.png"}, False: lambda n: {"image_id": n}}
    rows = [{**names[a["id"] % 2 == 0](a["image_id"]), "bbox": a["bbox"], "score": 0.9} for a in annotations]
    (tmp_path / "boxes.json").write_text(json.dumps(rows))
    metrics, split = vitrail.evaluate(found.folder, boxes=tmp_path / "boxes.json")
    scores = metrics.scores()
    assert split == found.split and scores["people"] == found.scores["people"]
    assert scores["boxes"] == found.scores["people"]  # some boxes of a picture are told by its name, others by its number


@pytest.mark.parametrize("size", [{"batch_size": 0}, {"batch_size": -1}, {"workers": -1}])
def test_a_size_that_is_none_is_refused(run, size):
    with pytest.raises(ConfigError, match=f"{next(iter(size))} is {next(iter(size.values()))}"):
        vitrail.evaluate(run.folder, **size)


@pytest.fixture
def workers_asked(monkeypatch):
    """Of every loader, as if a GPU computed, which has one process beside it."""
    asked, init = [], EpochLoader.__init__

    def asking(self, *args, **named):
        asked.append(named["workers"])
        init(self, *args, **named)

    monkeypatch.setattr(evaluation, "workers_beside", lambda device: 1)
    monkeypatch.setattr(EpochLoader, "__init__", asking)
    return asked


def test_processes_read_images_where_a_gpu_computes_unless_it_is_said_how_many(run, found, people, workers_asked):
    for workers in (None, 0, 2):
        vitrail.evaluate(run.folder, split="all", workers=workers)
    vitrail.evaluate(found.folder, people)
    assert workers_asked == [1, 0, 2, 1]


@pytest.mark.soak
def test_beside_an_engine_no_processes_read_images(run, pictures, workers_asked, tmp_path):
    api.export(run.folder, tmp_path / "exported", to="onnx")
    vitrail.evaluate(tmp_path / "exported", pictures, split="all")
    assert workers_asked == [0]


def test_people_in_boxes_are_read_by_this_process_beside_a_gpu_too(found, people, workers_asked):
    vitrail.evaluate(found.folder, people, boxes=people)
    assert not workers_asked
