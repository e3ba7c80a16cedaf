"""Metrics for trackers: TensorBoard's are read back by its own reader; stand-ins for W&B and MLflow note what they are told."""

import os
import sys
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vitrail.errors import ConfigError
from vitrail.training.runs.tracking import Tracker, _named, open_tracker


def read(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def row(epoch: int, loss: float) -> dict:
    return {"epoch": epoch, "step": 3 * epoch, "lr": 0.5, "train_loss": loss, "val_top1": 0.25, "images_per_second": 8.0}


def test_every_metric_of_every_epoch_is_there_with_training_and_validation_side_by_side(tmp_path):
    track = open_tracker("tensorboard", tmp_path, epochs_done=0)
    track(row(1, 2.0))
    track(row(2, 1.0))
    found = read(tmp_path / "tensorboard")
    assert found["loss/train"] == [(1, 2.0), (2, 1.0)]
    assert found["top1/val"] == [(1, 0.25), (2, 0.25)]
    assert found.keys() == {"loss/train", "top1/val", "lr", "step", "images_per_second"}


def test_a_resumed_run_replaces_the_epochs_it_makes_again(tmp_path):
    first = open_tracker("tensorboard", tmp_path, epochs_done=0)
    first(row(1, 3.0))
    first(row(2, 2.0))
    open_tracker("tensorboard", tmp_path, epochs_done=1)(row(2, 1.0))
    assert read(tmp_path / "tensorboard")["loss/train"] == [(1, 3.0), (2, 1.0)]


def test_nothing_is_written_unless_asked_for(tmp_path):
    open_tracker("none", tmp_path, epochs_done=0)(row(1, 1.0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "extra"), [("tensorboard", "track"), ("wandb", "wandb"), ("mlflow", "mlflow")])
def test_without_the_library_the_error_names_the_extra(tmp_path, monkeypatch, kind, extra):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=f"{kind} is not installed") as error:
        open_tracker(kind, tmp_path, epochs_done=0)
    assert f"vitrail[{extra}]" in error.value.hint


def test_a_run_tracks_its_epochs(make_trainer):
    trainer = make_trainer(**{"training.track": "tensorboard", "training.epochs": 2})
    trainer.run()
    found = read(trainer.folder.path / "tensorboard")
    assert found["loss/val"] == [(r["epoch"], pytest.approx(r["val_loss"])) for r in trainer.rows]


# W&B and MLflow


SILENT = {"WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


@pytest.fixture
def told(monkeypatch):
    """What the stand-ins for W&B and MLflow were told."""
    told = []

    class Run:
        def log(self, values, step):
            told.append(("log", step, values))

        def finish(self):
            told.append("finish")

    class Client:
        def __init__(self, tracking_uri):
            told.append(tracking_uri)

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return name

        def create_run(self, experiment, run_name):
            told.append(("run", experiment, run_name))
            return SimpleNamespace(info=SimpleNamespace(run_id="7"))

        def log_param(self, run, name, value):
            told.append(("setting", run, name, value))

        def log_metric(self, run, name, value, step):
            told.append(("log", run, step, name, value))

        def set_terminated(self, run):
            told.append(("finish", run))

    def init(**given):
        told.append(given)
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", *SILENT):
        monkeypatch.setenv(name, "")  # so that it is as before in the end
        monkeypatch.delenv(name)
    return told


def test_wandb_is_offline_in_the_run_folder_and_a_resumed_run_is_the_same(told, tmp_path, monkeypatch):
    track = open_tracker("wandb", tmp_path, epochs_done=0, settings={"model": {"dim": 16}})
    track(row(1, 2.0))
    track.close()
    begun, logged, finished = told
    assert (begun["mode"], begun["dir"], begun["name"]) == ("offline", str(tmp_path), tmp_path.name)
    assert begun["config"] == {"model": {"dim": 16}} and begun["project"] == "vitrail"
    assert logged[:2] == ("log", 1) and logged[2]["loss/train"] == 2.0 and finished == "finish"
    monkeypatch.setenv("WANDB_MODE", "online")
    open_tracker("wandb", tmp_path, epochs_done=1)
    assert told[-1]["id"] == begun["id"] and told[-1]["mode"] == "online"


def test_mlflow_writes_into_the_run_folder_and_a_resumed_run_is_the_same(told, tmp_path, monkeypatch):
    track = open_tracker("mlflow", tmp_path, epochs_done=0, settings={"model": {"dim": 16, "name": None}})
    track(row(1, 2.0))
    track.close()
    assert told[:3] == [
        f"sqlite:///{tmp_path}/mlflow/mlflow.db",
        ("run", "vitrail", tmp_path.name),
        ("setting", "7", "model.dim", 16),
    ]
    assert ("log", "7", 1, "loss/train", 2.0) in told and told[-1] == ("finish", "7")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker")
    open_tracker("mlflow", tmp_path, epochs_done=1)
    assert told[-1] == "http://tracker"  # and no second run


@pytest.mark.parametrize(("kind", "name"), [*zip(("wandb", "mlflow"), SILENT, strict=True)])
def test_a_tracker_tells_its_makers_nothing_unless_it_is_told_to(told, tmp_path, monkeypatch, kind, name):
    open_tracker(kind, tmp_path, epochs_done=0)
    assert os.environ[name] == SILENT[name]
    monkeypatch.setenv(name, "as I like")
    open_tracker(kind, tmp_path, epochs_done=0)
    assert os.environ[name] == "as I like"


def test_a_tracker_that_does_not_start_says_why(told, tmp_path, monkeypatch):
    def init(**given):
        raise RuntimeError("no login")

    monkeypatch.setattr(sys.modules["wandb"], "init", init)
    with pytest.raises(ConfigError, match="wandb does not start: no login"):
        open_tracker("wandb", tmp_path, epochs_done=0)


def test_a_whole_run_is_told_to_wandb_and_finished(told, make_trainer):
    trainer = make_trainer(**{"training.track": "wandb", "training.epochs": 2})
    trainer.run()
    assert [entry[1] for entry in told[1:-1]] == [1, 2] and told[-1] == "finish"


def test_a_tracker_that_fails_does_not_end_the_run(make_trainer, monkeypatch):
    class Gone(Tracker):
        def __call__(self, row):
            raise ConnectionError("no server")

        def close(self):
            raise ConnectionError("still none")

    monkeypatch.setattr("vitrail.training.loop.trainer.open_tracker", lambda *_, **__: Gone())
    trainer = make_trainer.finished("run", **{"training.epochs": 2})
    assert trainer.epoch == 2
    assert (trainer.folder.path / "train.log").read_text().count("tracking has failed and ends here") == 1


def test_metrics_of_two_words_keep_their_names():
    row = {"epoch": 1, "train_token_accuracy": 0.5, "val_token_accuracy": 0.4, "val_cider_d": 3.0, "lr": 0.1}
    assert _named(row) == {
        "token_accuracy/train": 0.5, "token_accuracy/val": 0.4, "cider_d/val": 3.0, "lr": 0.1,
    }  # fmt: skip
