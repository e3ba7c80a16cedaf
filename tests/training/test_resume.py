"""A run that was interrupted and resumed is, to the bit, the run that never stopped."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from vitrail import api
from vitrail.errors import ConfigError, DataError, DivergedError, ModelFileError
from vitrail.parts.cpu import kernels
from vitrail.parts.cpu.kernels import likely
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError, remembered_signals
from vitrail.training.loop import trainer as loop
from vitrail.training.runs import state as states
from vitrail.training.runs.checkpoint import checkpoints
from vitrail.training.runs.resuming import fingerprint, require_same_data
from vitrail.training.runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("unreported")

CLOCK = ("seconds", "images_per_second")
RICH = {
    "model.dropout": 0.1, "model.stochastic_depth": 0.2, "model.patch_dropout": 0.25, "augmentation.horizontal_flip": 0.5,
    "augmentation.crop": "resized", "training.ema": 0.9, "training.label_smoothing": 0.1, "training.epochs": 3,
    "schedule.warmup_epochs": 1,
}  # fmt: skip


class Stopping(Observer):
    """A signal comes during one step."""

    def __init__(self, trainer, step, number=signal.SIGINT):
        self.trainer, self.at, self.number = trainer, step, number

    def step(self, epoch, sums):
        if self.trainer.done == self.at:
            self.trainer.signals.received = self.number


class Recorder(Observer):
    """Keeps the notes it gets."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def outcome(trainer) -> dict:
    """Everything a run leaves that no clock has a part in, byte for byte."""
    folder = trainer.folder.path
    files = [folder / name / "model.safetensors" for name in ("best", "last")]
    files += sorted(folder.glob("*/adapter/*")) + sorted(checkpoints(folder)[0].glob("*.safetensors"))
    rows = [{k: v for k, v in row.items() if k not in CLOCK} for row in trainer.folder.rows]
    return {**{str(f.relative_to(folder)): f.read_bytes() for f in files}, "metrics": rows}


def status(trainer) -> dict:
    return json.loads((trainer.folder.path / "status.json").read_text())


@pytest.mark.parametrize("step", [1, 3, 8], ids=lambda step: f"step {step} of 9")
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


def test_a_resumed_run_goes_on_with_the_kernels_of_its_checkpoint(make_trainer, monkeypatch):
    """The machine may have been measured in between, and another kernel would round differently."""
    fused = replace(likely(), explicit_learning=0)
    monkeypatch.setattr(kernels, "_used", fused)
    options = RICH | {"training.precision": "bf16"}
    unbroken = make_trainer.finished("unbroken", **options)
    broken = make_trainer("broken", **options)
    with pytest.raises(InterruptedRunError):
        broken.run(Stopping(broken, 4))
    kernels.use(replace(likely(), explicit_learning=1024))
    resumed = make_trainer.reopen(broken)
    resumed.restore()
    assert kernels.kernels() == fused
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)


@pytest.mark.parametrize(
    "changes",
    [
        {"training.precision": "fp16"},
        {"optimizer.name": "muon", "optimizer.layer_decay": 0.5, "training.accumulate": 3},
        {"augmentation.mixup": 0.4, "augmentation.cutmix": 1.0, "augmentation.repeats": 2, "data.workers": 1},
        {"data.balance": "sampling", "augmentation.policy": "trivial", "training.recompute": True, "optimizer.name": "sgd"},
        {"schedule.patch_dropout": "falling", "model.patch_dropout": 0.75, "data.balance": "loss"},
        {"training.tune": "head", "optimizer.name": "adam"},
        {"training.tune": "lora", "optimizer.name": "muon", "training.precision": "bf16"},
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


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGUSR1, 138)],
)
def test_a_signal_is_answered_with_its_exit_code_and_the_command_to_resume(make_trainer, number, code):
    trainer = make_trainer()
    with pytest.raises(InterruptedRunError) as caught:
        trainer.run(Stopping(trainer, 2, number))
    assert caught.value.exit_code == code
    assert caught.value.hint == status(trainer)["resume"] == f"vitrail resume {trainer.folder.path}"


def test_the_kernel_may_repeat_that_the_cpu_time_is_over_and_what_is_ignored_stays_so(monkeypatch):
    monkeypatch.setattr("vitrail.runtime.signals.ECHO", 0.0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with remembered_signals() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert not signals.received
            for _ in range(3):
                signal.raise_signal(signal.SIGXCPU)
                time.sleep(0.01)
            assert signals.received == signal.SIGXCPU
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("given", "number", "asked"),
    [
        ({"SLURM_JOB_ID": "42"}, signal.SIGUSR1, "requeue 42"),
        ({"SLURM_JOB_ID": "45", "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "3"}, signal.SIGUSR1, "requeue 42_3"),
        ({"SLURM_JOB_ID": "42"}, signal.SIGTERM, None),
        ({}, signal.SIGUSR1, None),
    ],
)
def test_under_slurm_a_run_that_is_warned_of_its_end_goes_back_into_the_queue(
    pictures, tiny, tmp_path, monkeypatch, given, number, asked
):
    command = tmp_path / "bin" / "scontrol"
    command.parent.mkdir()
    command.write_text(
        '#!/bin/sh\n[ -e "$RUN/status.json" ] && grep -q interrupted "$RUN/status.json" && echo "$*" > "$RUN/asked"\n'
    )
    command.chmod(0o755)
    for name, value in {"PATH": f"{command.parent}:{os.environ['PATH']}", "RUN": str(tmp_path / "run"), **given}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InterruptedRunError):
        api.train(pictures, tmp_path / "run", observer=Interrupting(number), **tiny)
    found = tmp_path / "run" / "asked"
    assert (found.read_text().strip() if found.exists() else None) == asked
    assert ("requeued" in (tmp_path / "run" / "train.log").read_text()) == bool(asked)


def test_signals_are_remembered_and_a_second_one_that_is_no_echo_stops_at_once(monkeypatch, number=signal.SIGTERM):
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt), remembered_signals() as signals:
        os.kill(os.getpid(), number)
        assert signals.received == number
        os.kill(os.getpid(), number)  # from somebody else who passes it on
        time.sleep(0.01)
        monkeypatch.setattr("vitrail.runtime.signals.ECHO", 0.0)
        os.kill(os.getpid(), number)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(("epoch", "images"), [(1, 0), (2, 8), (3, 9)])
def test_a_signal_during_an_evaluation_is_heard_at_once_and_the_evaluation_made_again(make_trainer, epoch, images):
    class Evaluating(Observer):
        done = 0

        def begin(self, what, count):
            self.done = 0
            self.advance(0)

        def advance(self, count):
            self.done += count
            if len(broken.rows) == epoch - 1 and self.done == images:
                broken.signals.received = signal.SIGTERM

    unbroken = make_trainer.finished("unbroken", **RICH)
    broken = make_trainer("broken", **RICH)
    with pytest.raises(InterruptedRunError):
        broken.run(Evaluating())
    assert len(broken.rows) == epoch - 1 and broken.done == 3 * epoch
    resumed = make_trainer.reopen(broken)
    resumed.restore()
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)


def test_a_signal_before_the_first_step_is_heard_and_the_run_goes_on_from_there(make_trainer):
    unbroken = make_trainer.finished("unbroken", **RICH)
    broken = make_trainer("broken", **RICH)
    broken.signals.received = signal.SIGTERM
    with pytest.raises(InterruptedRunError):
        broken.run()
    resumed = make_trainer.reopen(broken)
    resumed.restore()
    assert resumed.done == 0 and checkpoints(resumed.folder.path)
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)


@pytest.mark.parametrize(("every", "expected"), [(0, [3, 6]), (2, [2, 3, 4, 6])])
def test_checkpoints_are_kept_as_often_as_asked_and_at_each_epochs_end(make_trainer, monkeypatch, every, expected):
    monkeypatch.setattr(loop, "SAVING", 1e9)  # as if an epoch took long
    trainer, saved = make_trainer(**{"training.checkpoint_every_steps": every}), []
    save = states.save_checkpoint
    monkeypatch.setattr(states, "save_checkpoint", lambda folder, *a, **k: (saved.append(trainer.done), save(folder, *a, **k)))
    trainer.run()
    assert saved == expected
    kept = [f"step-{step:09d}" for step in expected[-2:]]
    assert sorted(p.name for p in (trainer.folder.path / "checkpoints").iterdir()) == kept


def test_checkpoints_are_kept_at_least_as_often_as_the_clock_says(make_trainer, monkeypatch):
    trainer, saved = make_trainer(**{"training.checkpoint_every_seconds": 1e-9}), []
    save = states.save_checkpoint
    monkeypatch.setattr(states, "save_checkpoint", lambda folder, *a, **k: (saved.append(trainer.done), save(folder, *a, **k)))
    trainer.run()
    assert saved == [0, 1, 2, 3, 4, 5, 6]


def test_epochs_too_short_for_it_do_without_a_checkpoint_until_it_costs_little(make_trainer, monkeypatch):
    monkeypatch.setattr(loop, "SAVING", 1e-9)
    trainer = make_trainer(**{"training.epochs": 4})
    trainer.run()
    assert [p.name for p in checkpoints(trainer.folder.path)] == ["step-000000012", "step-000000003"]


@pytest.mark.parametrize(
    ("name", "how"),
    [("model.safetensors", "cut"), ("state.json", "changed"), ("optimizer.safetensors", "gone"), ("SHA256SUMS", "cut")],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_and_told_of(make_trainer, monkeypatch, name, how):
    monkeypatch.setattr(loop, "SAVING", 1e9)
    trainer = make_trainer(**RICH)
    trainer.run()
    file = checkpoints(trainer.folder.path)[0] / name
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-9] if how == "cut" else content[:50] + bytes([content[50] ^ 1]) + content[51:])
    expected, resumed, recorder = outcome(make_trainer.finished("unbroken", **RICH)), make_trainer.reopen(trainer), Recorder()
    resumed.restore(recorder)
    assert resumed.done == 6
    assert len(recorder.notes) == 1 and "step-000000009" in recorder.notes[0]
    assert recorder.notes[0] in (trainer.folder.path / "train.log").read_text()
    resumed.run()
    assert outcome(resumed) == expected


def test_a_run_of_which_no_checkpoint_is_whole_is_refused(make_trainer):
    trainer = make_trainer()
    trainer.run()
    for folder in checkpoints(trainer.folder.path):
        (folder / "state.json").write_text("{}")
    with pytest.raises(ModelFileError, match="every checkpoint is damaged"):
        make_trainer.reopen(trainer).restore()


def test_a_run_killed_over_its_first_checkpoint_begins_anew(make_trainer):
    unbroken, trainer = make_trainer.finished("unbroken", **RICH), make_trainer("killed", **RICH)
    with pytest.raises(InterruptedRunError):
        trainer.run(Stopping(trainer, 2))
    (complete,) = checkpoints(trainer.folder.path)
    complete.rename(complete.with_name(f".{complete.name}-draft"))
    resumed = make_trainer.reopen(trainer)
    resumed.folder.recover()
    resumed.restore()
    assert resumed.done == 0
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)


def test_damaged_checkpoints_do_not_count_among_the_two_that_are_kept(make_trainer):
    trainer = make_trainer(**RICH, **{"training.checkpoint_every_steps": 2})
    with pytest.raises(InterruptedRunError):
        trainer.run(Stopping(trainer, 5))
    newest, before = checkpoints(trainer.folder.path)
    (newest / "state.json").write_text("{}")
    resumed = make_trainer.reopen(trainer)
    resumed.restore()
    assert checkpoints(trainer.folder.path) == [before]
    resumed.done += 1  # as after a step
    resumed.save()
    assert [folder.name for folder in checkpoints(trainer.folder.path)] == ["step-000000005", before.name]


def test_changed_settings_are_refused_by_listing_them(make_trainer):
    trainer = make_trainer()
    trainer.run()
    old = trainer.settings
    trainer.settings = old.changed(
        optimizer=old.optimizer.changed(lr=0.5), training=old.training.changed(ema=0.9, checkpoint_every_steps=7)
    )
    with pytest.raises(ConfigError) as caught:
        make_trainer.reopen(trainer).restore()
    assert "optimizer.lr was 0.01, now 0.5" in caught.value.what and "training.ema was 0.0, now 0.9" in caught.value.what
    assert "checkpoint_every_steps" not in caught.value.what


@pytest.mark.parametrize(
    ("change", "words"),
    [("fewer", "train 22, val 9"), ("renamed", "as many"), ("classes", "classes"), ("pixels", "not what is in the files")],
)
def test_other_images_than_the_run_was_begun_with_are_refused(make_trainer, change, words):
    trainer = make_trainer()
    trainer.run()
    resumed = make_trainer.reopen(trainer)
    data, train = resumed.data, resumed.data.splits["train"]
    changed = {
        "fewer": train[1:],
        "renamed": [*train[1:], replace(train[0], name="other")],
        "pixels": [replace(item, image=255 - np.asarray(item.image)) for item in train],
    }
    if change == "classes":
        resumed.data = replace(data, classes=["a", "b", "c"])
    else:
        resumed.data = replace(data, splits={**data.splits, "train": changed[change]})
    resumed.fingerprint = fingerprint(resumed.data)
    with pytest.raises(DataError, match=words):
        resumed.restore()


def test_an_image_that_was_mended_is_told_of_and_the_run_goes_on(make_trainer):
    trainer = make_trainer()
    trainer.run()
    resumed, observer = make_trainer.reopen(trainer), Recorder()
    first, *others = resumed.data.splits["train"]
    mended = replace(first, image=255 - np.asarray(first.image))
    resumed.data = replace(resumed.data, splits={**resumed.data.splits, "train": [mended, *others]})
    resumed.fingerprint = fingerprint(resumed.data)
    resumed.restore(observer)
    assert any("images have changed" in note for note in observer.notes)
    assert resumed.state()[1]["data"] == resumed.fingerprint


def test_a_checkpoint_of_an_earlier_version_that_knows_no_contents_goes_on(make_trainer):
    trainer = make_trainer()
    trainer.run()
    resumed = make_trainer.reopen(trainer)
    begun = {name: value for name, value in trainer.fingerprint.items() if name != "contents"}
    require_same_data(begun, resumed.fingerprint, resumed.data)


def poison(trainer, steps, value=float("nan")):
    """From now on the loss is not finite in some steps."""
    loss = trainer.learner.task.loss
    trainer.learner.task.loss = lambda *given: loss(*given) * (value if trainer.done in steps else 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_is_left_out_and_the_run_goes_on(make_trainer, value):
    trainer, recorder = make_trainer(**RICH), Recorder()
    poison(trainer, {1, 2, 5}, value)
    before = {}

    class Watching(Recorder):
        def step(self, epoch, sums):
            weights = {k: v.clone() for k, v in trainer.learner.evaluated.model.state_dict().items()}
            moved = any(not torch.equal(weights[k], before[k]) for k in weights) if before else True
            assert moved == (trainer.done - 1 not in {1, 2, 5})
            before.update(weights)

    recorder = Watching()
    trainer.run(recorder)
    assert [note.partition(" is left out")[0] for note in recorder.notes] == ["step 2", "step 3", "step 6"]
    assert all(row["train_loss"] < 10 for row in trainer.rows)


def test_three_such_steps_in_a_row_end_the_run_and_the_last_checkpoint_stands(make_trainer):
    trainer = make_trainer(**RICH)
    poison(trainer, {3, 4, 5})
    with pytest.raises(DivergedError, match="3 steps in a row") as caught:
        trainer.run()
    assert caught.value.exit_code == 5 and "step 6 of 9" in str(caught.value)
    resumed = make_trainer.reopen(trainer)
    resumed.restore()
    assert resumed.done == 3 and all(value.isfinite().all() for value in resumed.learner.model.state_dict().values())


def test_steps_left_out_are_counted_over_an_interruption(make_trainer):
    trainer = make_trainer(**RICH)
    poison(trainer, {3, 4})
    with pytest.raises(InterruptedRunError):
        trainer.run(Stopping(trainer, 5))
    resumed = make_trainer.reopen(trainer)
    resumed.restore()
    poison(resumed, {5})
    with pytest.raises(DivergedError):
        resumed.run()


def test_a_checkpoint_holds_no_pickle(make_trainer):
    trainer = make_trainer(**{"training.ema": 0.9})
    trainer.run()
    files = list(checkpoints(trainer.folder.path)[0].iterdir())
    assert {f.suffix for f in files} == {".safetensors", ".json", ""}
    assert load_file(next(f for f in files if f.stem == "optimizer")).keys() >= {
        f"head.linear.weight.{key}" for key in ("exp_avg", "exp_avg_sq", "step")
    }


class Interrupting(Observer):
    """A signal comes during the first step."""

    def __init__(self, number=signal.SIGTERM):
        self.number = number

    def step(self, epoch, sums):
        signal.raise_signal(self.number)


def test_a_run_goes_on_where_its_data_was_moved_to_and_looks_there_from_then_on(pictures, tiny, tmp_path, monkeypatch):
    before, after, run = tmp_path / "before", tmp_path / "after", tmp_path / "run"
    shutil.copytree(pictures, before)
    with pytest.raises(InterruptedRunError):
        api.train(before, run, observer=Interrupting(), **tiny)
    before.rename(after)
    with pytest.raises(DataError, match="no data at") as error:
        api.resume(run)
    assert f"vitrail resume {run} --data PATH" in error.value.hint
    monkeypatch.chdir(tmp_path)
    api.resume(run, data="after")
    monkeypatch.chdir("/")
    metrics, split = api.evaluate(run)
    assert split == "test" and metrics.scores() == pytest.approx(RunFolder(run).standing["scores"], rel=1e-6)
