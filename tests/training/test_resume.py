"""A run that was interrupted and resumed is, to the bit, the run that never stopped."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from vitrail.errors import ModelFileError
from vitrail.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from vitrail.training.loop import Observer
from vitrail.training.signals import InterruptedRunError, remembered_signals

CLOCK = ("seconds", "images_per_second")
RICH = {
    "model.dropout": 0.1, "model.stochastic_depth": 0.2, "model.patch_dropout": 0.25, "augmentation.horizontal_flip": 0.5,
    "augmentation.crop": "resized", "training.ema": 0.9, "training.label_smoothing": 0.1, "training.epochs": 3,
    "schedule.warmup_epochs": 1,
}  # fmt: skip


class Stopping(Observer):
    """Sends this process a signal during one step."""

    def __init__(self, trainer, step, number=signal.SIGINT):
        self.trainer, self.at, self.number = trainer, step, number

    def step(self, epoch, sums):
        if self.trainer.done == self.at:
            os.kill(os.getpid(), self.number)


def outcome(trainer) -> dict:
    """Everything a run leaves that no clock has a part in, byte for byte."""
    folder = trainer.folder.path
    files = [folder / name / "model.safetensors" for name in ("best", "last")]
    files += sorted(folder.glob("*/adapter/*")) + sorted(latest_checkpoint(folder).glob("*.safetensors"))
    rows = [{k: v for k, v in row.items() if k not in CLOCK} for row in trainer.folder.rows]
    return {**{str(f.relative_to(folder)): f.read_bytes() for f in files}, "metrics": rows}


def status(trainer) -> dict:
    return json.loads((trainer.folder.path / "status.json").read_text())


@pytest.mark.parametrize("step", [1, 2, 3, 4, 6, 8], ids=lambda step: f"step {step} of 9")
def test_a_resumed_run_equals_an_unbroken_one_to_the_bit(make_trainer, step):
    unbroken = make_trainer.finished("unbroken", **RICH)
    broken = make_trainer("broken", **RICH)
    with pytest.raises(InterruptedRunError):
        broken.run(Stopping(broken, step))
    assert (status(broken)["state"], status(broken)["step"]) == ("interrupted", step)
    resumed = make_trainer.reopen(broken)
    torch.manual_seed(99)
    resumed.restore()
    assert resumed.done == step
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)
    resumed.finish()
    assert status(resumed)["state"] == "finished"


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer.name": "sgd"},
        {"optimizer.name": "adam"},
        {"training.precision": "bf16"},
        {"training.precision": "fp16"},
        {"data.workers": 1},
        {"training.accumulate": 3},
        {"optimizer.name": "muon", "optimizer.layer_decay": 0.5},
        {"augmentation.mixup": 0.4, "augmentation.cutmix": 1.0, "augmentation.repeats": 2},
        {"data.balance": "sampling", "augmentation.policy": "trivial"},
        {"data.balance": "loss"},
        {"schedule.patch_dropout": "falling", "model.patch_dropout": 0.75},
        {"training.tune": "head"},
        {"training.tune": "lora"},
        {"training.tune": "lora", "optimizer.name": "muon"},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_a_resumed_run_equals_an_unbroken_one_under_every_kind_of_training(make_trainer, changes):
    unbroken = make_trainer.finished("unbroken", **{**RICH, **changes})
    broken = make_trainer("broken", **{**RICH, **changes})
    with pytest.raises(InterruptedRunError):
        broken.run(Stopping(broken, 5))
    resumed = make_trainer.reopen(broken)
    resumed.restore()
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)


def test_a_run_may_be_interrupted_again_and_again(make_trainer):
    unbroken = make_trainer.finished("unbroken", **RICH)
    broken = make_trainer("broken", **RICH)
    for step in (2, 3, 7):
        with pytest.raises(InterruptedRunError):
            broken.run(Stopping(broken, step))
        broken = make_trainer.reopen(broken)
        broken.restore()
    broken.run()
    assert outcome(broken) == outcome(unbroken)


def test_a_run_killed_between_checkpoints_goes_on_from_the_last_of_them(make_trainer):
    class Killed(Observer):
        def step(self, epoch, sums):
            if broken.done == 5:
                raise MemoryError

    changes = {**RICH, "training.checkpoint_every_steps": 2}
    unbroken = make_trainer.finished("unbroken", **changes)
    broken = make_trainer("broken", **changes)
    with pytest.raises(MemoryError):
        broken.run(Killed())
    resumed = make_trainer.reopen(broken)
    resumed.restore()
    assert resumed.done == 4
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_answered_with_its_exit_code_and_the_command_to_resume(make_trainer, number, code):
    trainer = make_trainer()
    with pytest.raises(InterruptedRunError) as caught:
        trainer.run(Stopping(trainer, 2, number))
    assert caught.value.exit_code == code
    assert caught.value.hint == status(trainer)["resume"] == f"vitrail resume {trainer.folder.path}"


def test_a_second_signal_stops_at_once(make_trainer):
    class Twice(Observer):
        def step(self, epoch, sums):
            os.kill(os.getpid(), signal.SIGINT)

        def begin(self, what, images):
            os.kill(os.getpid(), signal.SIGINT)

    trainer = make_trainer(**{"training.batch_size": 22})
    with pytest.raises(KeyboardInterrupt):
        trainer.run(Twice())


def test_the_handlers_of_signals_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with remembered_signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(("every", "expected"), [(0, [3, 6]), (1, [1, 2, 3, 4, 5, 6]), (2, [2, 3, 4, 6]), (4, [3, 4, 6])])
def test_checkpoints_are_kept_as_often_as_asked_and_at_each_epochs_end(make_trainer, monkeypatch, every, expected):
    trainer, saved = make_trainer(**{"training.checkpoint_every_steps": every}), []
    save = trainer.save
    monkeypatch.setattr(trainer, "save", lambda: (saved.append(trainer.done), save())[1])
    trainer.run()
    assert saved == expected
    assert [p.name for p in (trainer.folder.path / "checkpoints").iterdir()] == ["step-000000006"]


def test_the_old_checkpoint_goes_only_when_the_new_one_stands(make_trainer, monkeypatch):
    trainer = make_trainer()

    def failing(*_):
        raise OSError("no space left on device")

    class Full(Observer):
        def epoch(self, row):
            monkeypatch.setattr("vitrail.training.loop.save_checkpoint", failing)

    with pytest.raises(OSError, match="no space"):
        trainer.run(Full())
    assert [p.name for p in (trainer.folder.path / "checkpoints").iterdir()] == ["step-000000003"]
    resumed = make_trainer.reopen(trainer)
    resumed.restore()
    assert resumed.done == 3


def test_a_checkpoint_that_could_not_be_written_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "step-1", {"model": {"a": torch.ones(2)}}, {"not JSON": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path):
    tensors = {"model": {"a": torch.randn(2, 3)}, "random": {"torch": torch.get_rng_state()}}
    save_checkpoint(tmp_path / "step-1", tensors, {"done": 3})
    read, state = load_checkpoint(tmp_path / "step-1")
    assert state == {"done": 3}
    assert torch.equal(read["model"]["a"], tensors["model"]["a"])
    assert torch.equal(read["random"]["torch"], tensors["random"]["torch"])


def test_a_damaged_checkpoint_is_refused(make_trainer):
    trainer = make_trainer()
    trainer.run()
    file = latest_checkpoint(trainer.folder.path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ModelFileError, match="damaged"):
        make_trainer.reopen(trainer).restore()


def test_there_is_nothing_to_resume_where_there_is_no_checkpoint(make_trainer):
    with pytest.raises(ModelFileError, match="no checkpoint"):
        make_trainer().restore()


def test_a_checkpoint_holds_no_pickle(make_trainer):
    trainer = make_trainer(**{"training.ema": 0.9})
    trainer.run()
    files = list(latest_checkpoint(trainer.folder.path).iterdir())
    assert {f.suffix for f in files} == {".safetensors", ".json"}
    assert load_file(next(f for f in files if f.stem == "optimizer")).keys() >= {"0.0.exp_avg", "0.0.exp_avg_sq", "0.0.step"}
