"""Where the machine decides, a run has its answer in its settings before the first step."""

import shutil
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace

import pytest

from vitrail import api
from vitrail.config.settings import RunSettings
from vitrail.parts.cpu import kernels
from vitrail.parts.cpu.kernels import likely
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.training.runs import run as running
from vitrail.training.runs import setup as preparing
from vitrail.training.runs.checkpoint import checkpoints, has_checkpoint, recover_checkpoints
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.runs.setup import with_precision


class Listening(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def decided(monkeypatch):
    """``decided("auto", bf16=True)``: the precision of a run that asks for auto, where bf16 is the quicker, and what is told."""

    def ask(precision: str, *, bf16: bool, group: Processes | None = None) -> tuple[str, list[str]]:
        monkeypatch.setattr("vitrail.models.inference.use_measured", lambda: None)
        monkeypatch.setattr(kernels, "_used", replace(likely(), bf16=bf16))
        training = {"precision": precision, "device": "cpu"}
        settings = RunSettings.read({"model": {"name": "ViT-Ti/16"}, "data": {"source": "photos"}, "training": training})
        observer = Listening()
        return with_precision(settings, observer, group or Processes()).training.precision, observer.notes

    return ask


@pytest.mark.parametrize(("bf16", "chosen"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_the_quicker_precision_of_this_machine(bf16, chosen, decided):
    assert decided("auto", bf16=bf16) == (chosen, [f"precision {chosen}, the quicker one here"])


def test_all_processes_take_what_the_first_has_found(decided):
    class Second(Processes):
        def broadcast(self, value):
            return "bf16"

    assert decided("auto", bf16=False, group=Second(1, 2))[0] == "bf16"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("bf16", [True, False])
def test_a_precision_that_is_asked_for_stays_and_a_slow_one_is_warned_of(precision, bf16, decided):
    chosen, notes = decided(precision, bf16=bf16)
    assert chosen == precision
    assert ["slower in bf16" in note for note in notes] == [True] * (precision == "bf16" and not bf16)


# a run is decided once


@pytest.fixture
def planned(monkeypatch):
    """The plans of runs that are begun or go on, and the tasks that are created for them."""
    found = SimpleNamespace(plans=[], tasks=[])
    for name in ("plan_run", "plan_resumed"):
        plan = getattr(running, name)
        monkeypatch.setattr(running, name, lambda *a, plan=plan, **k: found.plans.append(plan(*a, **k)) or found.plans[-1])
    create = running.create_task
    monkeypatch.setattr(running, "create_task", lambda *a, **k: found.tasks.append(create(*a, **k)) or found.tasks[-1])
    return found


@pytest.fixture
def damaged(pictures, tmp_path):
    """The pictures, of which one cannot be read."""
    folder = shutil.copytree(pictures, tmp_path / "damaged")
    (folder / "red" / "3.png").write_bytes(b"no picture")
    return folder


def test_all_of_a_run_is_decided_before_anything_is_written_and_stays(planned, damaged, tiny, tmp_path, monkeypatch, unreported):
    monkeypatch.setattr(preparing, "largest_batch_size", lambda *_, **__: 6)
    create, seen = RunFolder.create.__func__, []
    monkeypatch.setattr(
        RunFolder, "create", classmethod(lambda cls, *a, **k: seen.append(len(planned.plans)) or create(cls, *a, **k))
    )
    asked = {**tiny, "training.batch_size": "auto", "precision": "auto", "bad_images": "skip"}
    run = api.train(damaged, tmp_path / "run", **asked)
    (plan,) = planned.plans
    assert seen == [1]  # no folder before there is a plan
    t = plan.settings.training
    assert t.batch_size == 6 and t.precision in ("fp32", "bf16")
    assert list(plan.bad) == ["red/3.png"] and "red/3.png" not in {item.name for item in plan.data.split("all")}
    assert plan.preparation == plan.settings.preparation and plan.settings.model.num_classes == 3
    assert RunFolder.open(run.folder).settings == plan.settings
    with pytest.raises(FrozenInstanceError):
        plan.settings = None


def test_a_task_is_built_once_whatever_comes_before_the_first_epoch(planned, run, pictures, tmp_path, unreported):
    tuned = api.train(pictures, tmp_path / "run", start=str(run.folder), epochs=1, **{"training.probe": True})
    assert "probe: " in (tuned.folder / "train.log").read_text()
    assert len(planned.tasks) == 2  # the other is of the best model, as it was saved


def test_a_run_goes_on_by_its_own_settings_and_what_is_given_over_them(planned, damaged, tiny, tmp_path, unreported):
    class Stopping(Observer):
        def step(self, epoch, sums):
            if epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.train(damaged, tmp_path / "run", observer=Stopping(), **tiny, bad_images="skip", checkpoint_every_steps=1)
    moved = damaged.rename(tmp_path / "moved")
    run = api.resume(tmp_path / "run", data=str(moved))
    first, second = planned.plans
    assert second.bad == first.bad and second.data.assignment == first.data.assignment and second.start is None
    assert second.settings == first.settings.changed(data=first.settings.data.changed(source=str(moved)))
    assert RunFolder.open(run.folder).settings == second.settings


def test_a_checkpoint_that_a_kill_left_renamed_is_one(tmp_path):
    assert not has_checkpoint(tmp_path)
    (tmp_path / "checkpoints" / ".step-000000003-1a-old").mkdir(parents=True)
    assert has_checkpoint(tmp_path) and not checkpoints(tmp_path)
    recover_checkpoints(tmp_path)
    assert has_checkpoint(tmp_path) and [folder.name for folder in checkpoints(tmp_path)] == ["step-000000003"]
