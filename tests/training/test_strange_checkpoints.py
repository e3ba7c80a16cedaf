"""A checkpoint whose checksums are right may still be a stranger's: it is refused before a step is made of it."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitrail.errors import ModelFileError
from vitrail.training.runs.checkpoint import SUMS, checkpoints, checksums

SETTINGS = {"training.average": 2, "training.epochs": 2}


def _without(tensors, name):
    return {key: tensor for key, tensor in tensors.items() if key != name}


STATES = {
    "done is a text": lambda state: dict(state, done="3"),
    "done is negative": lambda state: dict(state, done=-1),
    "best is a number": lambda state: dict(state, best=3),
    "best has no score": lambda state: dict(state, best=_without(state["best"], "val_loss")),
    "a row is a list": lambda state: dict(state, rows=[*state["rows"], []]),
    "a row without a step": lambda state: dict(state, rows=[_without(state["rows"][0], "step")]),
    "sums are words": lambda state: dict(state, sums={**state["sums"], "loss": "x"}),
    "the time is no number": lambda state: dict(state, spent=float("nan")),
    "data is a list": lambda state: dict(state, data=[]),
}
TENSORS = {
    "a moment is missing": ("optimizer", lambda tensors: _without(tensors, "head.linear.bias.exp_avg")),
    "a moment of another shape": ("optimizer", lambda tensors: {**tensors, "head.linear.bias.exp_avg_sq": torch.zeros(4)}),
    "a step of no number": ("optimizer", lambda tensors: {**tensors, "head.linear.bias.step": torch.zeros(0)}),
    "a parameter that is none": ("optimizer", lambda tensors: {**tensors, "head.nobody.step": torch.zeros(())}),
    "an epoch of another model": ("epoch-00", lambda tensors: {name: tensor[None] for name, tensor in tensors.items()}),
}


@pytest.fixture
def finished(make_trainer):
    """A run that has ended, and a function that opens it again with another checkpoint and expects it to be refused."""
    trainer = make_trainer.finished("run", **SETTINGS)
    (checkpoint,) = checkpoints(trainer.folder.path)[:1]

    def refused(match="damaged, or of another model"):
        (checkpoint / SUMS).write_text(checksums(checkpoint))
        with pytest.raises(ModelFileError, match=match) as error:
            make_trainer.reopen(trainer).restore()
        assert error.value.where and error.value.hint

    return checkpoint, refused


def test_a_state_of_other_types_is_refused(finished):
    checkpoint, refused = finished
    state = json.loads((checkpoint / "state.json").read_text())
    for change in STATES.values():
        (checkpoint / "state.json").write_text(json.dumps(change(state)))
        refused()


def test_tensors_that_would_fail_at_a_later_step_are_refused(finished):
    checkpoint, refused = finished
    for name, change in TENSORS.values():
        file = checkpoint / f"{name}.safetensors"
        whole = file.read_bytes()
        save_file(change(load_file(file)), file)
        refused()
        file.write_bytes(whole)


def test_a_run_that_has_lost_its_best_model_does_not_go_on_to_fail_at_its_end(finished):
    checkpoint, refused = finished
    shutil.rmtree(checkpoint.parents[1] / "best")
    refused("the run's best model is missing")
