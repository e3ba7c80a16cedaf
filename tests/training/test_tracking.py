"""Metrics for TensorBoard: read back by its own reader."""

import builtins

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vitrail.errors import ConfigError
from vitrail.training.tracking import open_tracker


def read(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def row(epoch: int, loss: float) -> dict:
    return {"epoch": epoch, "step": 3 * epoch, "lr": 0.5, "train_loss": loss, "val_top1": 0.25, "images_per_second": 8.0}


def test_every_metric_of_every_epoch_is_there_with_training_and_validation_side_by_side(tmp_path):
    track = open_tracker("tensorboard", tmp_path / "tensorboard", epochs_done=0)
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
    assert read(tmp_path)["loss/train"] == [(1, 3.0), (2, 1.0)]


def test_nothing_is_written_unless_asked_for(tmp_path):
    open_tracker("none", tmp_path / "tensorboard", epochs_done=0)(row(1, 1.0))
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_error_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError) as error:
        open_tracker("tensorboard", tmp_path, epochs_done=0)
    assert "vitrail[track]" in error.value.hint


def test_a_run_tracks_its_epochs(make_trainer):
    trainer = make_trainer(**{"training.track": "tensorboard", "training.epochs": 2})
    trainer.run()
    found = read(trainer.folder.path / "tensorboard")
    assert found["loss/val"] == [(r["epoch"], pytest.approx(r["val_loss"])) for r in trainer.rows]
