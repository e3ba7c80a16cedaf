"""What stands in the folder of a run, and that a run never touches another's."""

import csv
import hashlib
import io
import json
import os
import shutil

import pytest
import yaml

from vitrail import api
from vitrail.config.configuration import nested, resolve
from vitrail.config.settings import RunSettings
from vitrail.errors import ConfigError, DataError, DiskFullError, DivergedError, ModelFileError
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import name_of
from vitrail.training.loop.trainer import Trainer
from vitrail.training.runs import run_folder
from vitrail.training.runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("unreported")

PROMISED = {
    "predictions.csv",
    "config.yaml", "env.json", "metrics.jsonl", "metrics.csv", "train.log", "model_summary.txt",
    "classification_report.txt", "report.html", "plots", "checkpoints", "best", "last", "status.json",
}  # fmt: skip


def everything(folder) -> dict:
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def test_a_run_folder_holds_everything_it_promises_and_nothing_half_written(run):
    names = {path.name for path in run.folder.iterdir()}
    assert names == PROMISED | {"splits.json"}
    assert {p.name for p in (run.folder / "plots").iterdir()} >= {"confusion.png", "curves.png", "calibration.png", "unsure.png"}
    model_files = {"config.json", "model.safetensors", "preprocessor_config.json", "README.md", "SHA256SUMS"}
    assert {p.name for p in (run.folder / "best").iterdir()} == model_files
    assert {p.name for p in (run.folder / "last").iterdir()} == model_files
    assert all(path.stat().st_size > 0 for path in run.folder.rglob("*") if path.is_file())
    assert not [path for path in run.folder.rglob("*") if path.name.startswith(".")]


def test_metrics_are_the_same_in_both_files(run):
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    table = list(csv.DictReader(io.StringIO((run.folder / "metrics.csv").read_text())))
    assert [{k: float(v) for k, v in row.items()} for row in table] == [{k: float(v) for k, v in row.items()} for row in rows]
    assert [row["epoch"] for row in rows] == list(range(1, 9))
    assert rows[0].keys() >= {"epoch", "step", "lr", "train_loss", "train_top1", "val_loss", "val_top1", "seconds"}


def test_a_finished_run_says_so_and_has_nothing_to_resume(run):
    status = json.loads((run.folder / "status.json").read_text())
    assert (status["state"], status["resume"]) == ("finished", None)
    assert (status["epoch"], status["epochs"], status["step"], status["steps"]) == (8, 8, 16, 16)
    assert status["best"] in RunFolder(run.folder).rows


def test_a_finished_run_keeps_its_newest_checkpoint_alone_says_so_and_can_be_reported_on_again(run, tmp_path):
    (newest,) = (run.folder / "checkpoints").iterdir()
    assert newest.name == "step-000000016"
    said = (run.folder / "train.log").read_text().splitlines()[-1]
    assert "all checkpoints but the newest are removed" in said and not said.endswith(" 0.0 MB")
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    status = json.loads((copy / "status.json").read_text())
    (copy / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    assert api.resume(copy).scores == run.scores


def test_the_environment_names_versions_machine_and_command(run):
    environment = json.loads((run.folder / "env.json").read_text())
    assert environment["packages"]["torch"]
    assert environment["packages"]["vitrail"]
    assert environment["cores"] == os.cpu_count()
    assert environment["command"]


def test_the_summary_of_the_model_is_that_of_the_kept_model(run):
    text = (run.folder / "model_summary.txt").read_text()
    assert f"{sum(p.numel() for p in run.trained.model.parameters()):,}" in text.splitlines()[-1]


def test_the_configuration_is_complete(run):
    written = yaml.safe_load((run.folder / "config.yaml").read_text())

    def missing(section, values, prefix=""):
        for name, field in section.model_fields.items():
            if name not in values:
                yield prefix + name
            elif isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                yield from missing(field.annotation, values[name], f"{prefix}{name}.")

    assert list(missing(RunSettings, written)) == []
    assert written["model"]["num_classes"] == 3


def test_the_configuration_trains_the_same_model_again(run, tmp_path):
    again = api.train(out=tmp_path / "again", config=run.folder / "config.yaml")
    assert (again.folder / "config.yaml").read_bytes() == (run.folder / "config.yaml").read_bytes()
    weights = [hashlib.sha256((f / "best" / "model.safetensors").read_bytes()).digest() for f in (run.folder, again.folder)]
    assert weights[0] == weights[1]
    assert again.scores == run.scores


@pytest.mark.parametrize("name", ["work.txt", ".hidden", "status.json"])
def test_a_folder_with_anything_in_it_is_left_alone(pictures, tiny, tmp_path, name):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).write_text("of years")
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match="exists") as caught:
        api.train(pictures, folder, **tiny)
    assert caught.value.exit_code == 2
    assert everything(tmp_path) == before


class Failing(Observer):
    """Raises an error in a step of an epoch, both counted from 0."""

    def __init__(self, epoch, error):
        self.at, self.error = epoch, error

    def step(self, epoch, sums):
        if epoch == self.at:
            raise self.error


@pytest.mark.parametrize("there", ["nothing", "an empty folder"])
def test_of_two_runs_that_want_one_folder_the_second_is_refused_and_the_first_is_left_alone(pictures, tiny, tmp_path, there):
    """The second one looks while the first has not begun, and comes back when it has."""
    folder = tmp_path / "run"
    if there == "an empty folder":
        folder.mkdir()

    class Overtaken(Observer):
        def begin(self, what, images):
            if what == "checking images":
                api.train(pictures, folder, **tiny)

    with pytest.raises(ConfigError, match="exists"):
        api.train(pictures, folder, observer=Overtaken(), **tiny)
    assert RunFolder.open(folder).rows and (folder / "best").is_dir()
    assert not [file for file in tmp_path.iterdir() if file != folder]


@pytest.mark.parametrize("there", ["nothing", "an empty folder"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_run_that_cannot_begin_leaves_alone_what_another_has_put_there_meanwhile(tmp_path, monkeypatch, there, error):
    folder = tmp_path / "runs" / "run"
    if there == "an empty folder":
        folder.mkdir(parents=True)
    settings = resolve({}, {}, nested({"data": "digits", "model": "ViT-Ti/4", "image_size": 8}))

    def overtaken():
        monkeypatch.setattr(run_folder, "environment", dict)
        if there == "nothing":
            RunFolder.create(folder, settings, None)
            (folder / "precious").write_text("a week's work")
        raise error

    monkeypatch.setattr(run_folder, "environment", overtaken)
    with pytest.raises((KeyboardInterrupt, ConfigError)):
        RunFolder.create(folder, settings, None)
    if there == "nothing":
        assert RunFolder.open(folder).standing["state"] == "running" and (folder / "precious").exists()
    else:
        assert list(folder.iterdir()) == []
    assert [file for file in folder.parent.iterdir() if file != folder] == []


def test_a_run_that_cannot_begin_takes_its_new_folders_away(tmp_path, monkeypatch):
    settings = resolve({}, {}, nested({"data": "digits", "model": "ViT-Ti/4", "image_size": 8}))
    monkeypatch.setattr(run_folder, "environment", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        RunFolder.create(tmp_path / "a" / "b" / "run", settings, None)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_that_fails_before_its_first_checkpoint_stays(run, pictures, tmp_path):
    folder, data = shutil.copytree(run.folder, tmp_path / "run"), shutil.copytree(pictures, tmp_path / "pictures")
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running"}))
    with pytest.raises(DataError, match="no labels"):  # before any work, which leaves it as it is
        api.resume(folder, **{"data.source": str(data / "red")})
    assert json.loads((folder / "status.json").read_text())["state"] == "running"
    with pytest.raises(RuntimeError):
        api.resume(folder, observer=Failing(0, RuntimeError("unforeseen")))
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "failed" and "resume" in status["resume"]
    api.resume(folder, **{"data.source": str(data)})
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"


@pytest.mark.parametrize("error", [RuntimeError("unforeseen"), KeyboardInterrupt(), DivergedError("too fast")], ids=repr)
def test_a_failure_before_the_first_checkpoint_leaves_nothing(pictures, tiny, tmp_path, error):
    with pytest.raises(type(error)):
        api.train(pictures, tmp_path / "deep" / "run", observer=Failing(0, error), **tiny)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "said"), [(RuntimeError("unforeseen"), "RuntimeError('unforeseen')"), (DivergedError("too fast"), "too fast")]
)
def test_a_failure_after_a_checkpoint_is_told_in_the_status_and_can_be_resumed(pictures, tiny, tmp_path, error, said):
    folder = tmp_path / "run"
    with pytest.raises(type(error)):
        api.train(pictures, folder, observer=Failing(1, error), **tiny)
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["error"]) == ("failed", said)
    assert status["resume"] == f"vitrail resume {folder}"
    assert said in (folder / "train.log").read_text()
    api.resume(folder)
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"


@pytest.mark.parametrize("content", [b"", bytes(100)], ids=["empty", "zeros"])
def test_a_run_whose_status_went_with_the_power_is_resumed_from_its_checkpoint(pictures, tiny, tmp_path, content):
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError):
        api.train(pictures, folder, observer=Failing(1, RuntimeError("unforeseen")), **tiny)
    (folder / "status.json").write_bytes(content)
    assert api.resume(folder).scores["images"] > 0
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"


def test_a_folder_without_a_run_is_no_run(tmp_path):
    with pytest.raises(ModelFileError, match="no run folder"):
        RunFolder.open(tmp_path)


def test_resuming_a_run_whose_classes_changed_is_refused(pictures, tiny, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("red", "green", "blue"):
        (data / name).symlink_to(pictures / name)
    with pytest.raises(RuntimeError):
        api.train(data, tmp_path / "run", observer=Failing(1, RuntimeError("unforeseen")), **tiny)
    (data / "green").unlink()
    with pytest.raises(DataError, match="2 classes"):
        api.resume(tmp_path / "run")


def test_resuming_a_run_whose_images_changed_keeps_the_old_deal(pictures, tiny, tmp_path):
    import shutil

    data = shutil.copytree(pictures, tmp_path / "data")
    with pytest.raises(RuntimeError):
        api.train(data, tmp_path / "run", observer=Failing(1, RuntimeError("unforeseen")), **tiny)
    assigned = json.loads((tmp_path / "run" / "splits.json").read_text())
    shutil.copy(data / "red" / "0.png", data / "red" / "0a.png")
    run = api.resume(tmp_path / "run")
    assert json.loads((run.folder / "splits.json").read_text()) == assigned
    assert run.scores["images"] == sum(split == "test" for split in assigned.values())


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/home/me/photos", "photos"),
        ("cifar10:/home/me/cifar-10-python.tar.gz", "cifar10:cifar-10-python.tar.gz"),
        ("org/model", "org/model"),
        ("", ""),
    ],
)
def test_of_a_whole_path_the_last_name_is_told(source, name):
    assert name_of(source) == name


def test_rows_of_an_earlier_version_may_have_other_columns(tmp_path):
    RunFolder(tmp_path).write_rows([{"epoch": 1, "val_top1": 0.5}, {"epoch": 2, "val_f1": 0.25}])
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["epoch,val_top1,val_f1", "1,0.5,", "2,,0.25"]


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_a_finished_run_that_has_lost_its_best_model_says_so_and_what_there_is_instead(kind, run, translated_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree((run if kind == "images" else translated_run).folder, folder)
    shutil.rmtree(folder / "best")
    for ask in (api.resume, api.evaluate):
        with pytest.raises(ModelFileError, match="best model is missing") as error:
            ask(folder)
        assert error.value.where == folder / "best" and str(folder / "last") in error.value.hint
    shutil.rmtree(folder / "last")
    with pytest.raises(ModelFileError, match="best model is missing") as error:
        api.evaluate(folder)
    assert "train again" in error.value.hint


@pytest.mark.parametrize("kept", ["best", "nothing"])
def test_a_run_whose_first_checkpoint_finds_no_room_keeps_what_it_has(pictures, tiny, tmp_path, monkeypatch, kept):
    def full(*found, **words):
        raise DiskFullError("no room", where="disk", hint="free some space")

    monkeypatch.setattr(Trainer, "save" if kept == "best" else "save_model", full)
    with pytest.raises(DiskFullError):
        api.train(pictures, tmp_path / "run", **tiny)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"
    assert (tmp_path / "run" / "best").is_dir() == (kept == "best")
    monkeypatch.undo()
    assert api.resume(tmp_path / "run").scores


def test_what_a_new_disk_has_stays_where_a_run_leaves_nothing(pictures, tiny, tmp_path):
    run = RunFolder(tmp_path / "run")
    for name in ("lost+found", "plots"):
        (run.path / name).mkdir(parents=True)
    run.made = []
    run.remove()
    assert [path.name for path in run.path.iterdir()] == ["lost+found"]
