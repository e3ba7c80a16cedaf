"""When a run ends: by patience, by the clock, and later than was planned."""

import json
import pickle
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from vitrail import api
from vitrail.config.settings import TrainingSettings
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE
from vitrail.runtime.signals import InterruptedRunError
from vitrail.tasks.task import Metrics, Task
from vitrail.tasks.translation.pairs import Pair
from vitrail.tasks.translation.task import Translation
from vitrail.training.loop import clock as clocks
from vitrail.training.loop import time_budget
from vitrail.training.loop.clock import Clock
from vitrail.training.loop.time_budget import SCORING, TimeBudget
from vitrail.training.runs.checkpoint import checkpoints
from vitrail.training.runs.run import resume_run
from vitrail.training.runs.run_folder import RunFolder
from words import TINY_TRANSLATOR, task_of, write_pairs

pytestmark = pytest.mark.usefixtures("unreported")


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# patience


def test_a_run_ends_after_so_many_epochs_without_a_better_one(make_trainer, monkeypatch):
    trainer = make_trainer(**{"training.epochs": 9, "training.patience": 2})
    losses = iter([0.9, 0.5, 0.6, 0.7, 0.1])
    monkeypatch.setattr(trainer, "_validation", lambda: Scores(next(losses)))
    trainer.run()
    assert [row["val_loss"] for row in trainer.rows] == [0.9, 0.5, 0.6, 0.7]
    assert trainer.best["epoch"] == 2 and checkpoints(trainer.folder.path)[0].name == f"step-{trainer.done:09d}"


class Scores(Metrics):
    """Metrics that were decided beforehand."""

    def __init__(self, loss):
        self.loss = loss

    def scores(self):
        return {"loss": self.loss, "top1": -self.loss, "images": 1}


# the clock


class Ticking:
    """A clock by which every look takes a second."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 0.25
        return self.now


def ticking(monkeypatch):
    """A clock that ticks, by which a report takes no time."""
    monkeypatch.setattr(clocks, "time", Ticking())
    monkeypatch.setattr(Task, "report_seconds", 0.0)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), (45, 45)])
def test_times_are_written_as_people_write_them(text, seconds):
    assert TrainingSettings.read({"time_limit": text}).time_limit == seconds


@pytest.mark.parametrize("text", ["", "10 m", "0s", "h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="time_limit"):
        TrainingSettings.read({"time_limit": text})


def test_a_clock_counts_what_went_before_and_holds_a_reserve(monkeypatch):
    ticking(monkeypatch)
    assert Clock(None).share(0) == 0
    assert Clock(10, spent=4.75).share(reserve=0) == 0.5
    assert Clock(10, spent=2.25).share(reserve=5) == 0.5
    assert Clock(10, spent=99).share(reserve=0) == Clock(10).share(reserve=10) == 1


def test_a_time_limit_ends_a_run_and_its_schedule_with_it(make_trainer, monkeypatch):
    """However many epochs there were to be."""
    ticking(monkeypatch)
    limit = {"training.epochs": 1000, "training.time_limit": 20, "schedule.warmup_epochs": 0, "schedule.final": 0.0}
    trainer = make_trainer.finished("run", **limit)
    assert 2 <= trainer.epoch < 100
    rates = [row["lr"] for row in trainer.rows]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.5 * trainer.settings.optimizer.lr and rates[-1] < 0.05 * trainer.settings.optimizer.lr
    assert checkpoints(trainer.folder.path)[0].name == f"step-{trainer.done:09d}"
    assert (trainer.folder.path / "last" / "model.safetensors").exists()


def test_the_budget_counts_scoring_as_long_as_a_few_items_took_in_each_way(translator, monkeypatch):
    asked = []
    slow = {"follow": 1.0, "answer": 4.0}
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, perf_counter=lambda: clock.now, process_time=lambda: clock.now)
    monkeypatch.setattr(time_budget, "time", clock)

    def evaluated(answer, loader, metrics, **options):
        asked.append((metrics.write is not None, len(loader.dataset)))
        clock.now += slow["answer" if metrics.write else "follow"] * len(loader.dataset)

    monkeypatch.setattr(time_budget, "evaluate", evaluated)
    items = [Pair(f"pairs.tsv:{number}", "one cat", "eins Katze") for number in range(40)]
    budget = TimeBudget(items, items[:20], passes=2)
    budget.measure(task_of(translator), 400, torch.device("cpu"), ALONE, seconds=40)
    assert (budget.validating, budget.reporting) == (1.0, 4.0)
    assert asked == [(False, 1), (False, 4), (False, 16), (True, 1), (True, 4)]  # until a few hundredths of the time are used
    assert budget.seconds() == 2 * 20 * 1.0 + 40 * 4.0 + Translation.report_seconds


@pytest.mark.parametrize(("left", "validated", "scored"), [(10_000, 80, 200), (1000, 30, 200), (100, 2, 25), (1, 2, 2)])
def test_what_is_scored_is_scaled_to_the_time(left, validated, scored):
    budget = TimeBudget(range(200), range(80), passes=4)
    budget.validating, budget.reporting, budget.report = 2.0, 2.0, 10.0
    budget.choose(left)
    assert len(budget.validated) == validated
    assert budget.seconds() <= max(SCORING * left, 10 + 4 * 2 * 2.0)
    assert len(budget.scored(left * SCORING + 10)) == scored


def test_a_time_limit_leaves_room_for_the_search_at_the_end_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(TimeBudget, "seconds", lambda self: 3499.0)
    ticking(monkeypatch)
    settings = {**TINY_TRANSLATOR, "training.epochs": 3, "training.time_limit": 3500}
    run = api.train(write_pairs(tmp_path / "pairs.tsv"), tmp_path / "run", **settings)
    assert rows_of(run.folder)[-1]["step"] < 10


def test_an_epoch_may_be_cut_short_but_never_to_nothing(make_trainer, monkeypatch):
    ticking(monkeypatch)
    trainer = make_trainer.finished("run", **{"training.epochs": 3, "training.time_limit": 0.1})
    assert (trainer.epoch, trainer.done) == (1, 1) and trainer.rows[0]["step"] == 1


def test_a_resumed_run_has_the_rest_of_its_time(make_trainer, monkeypatch):
    limit = {"training.epochs": 1000, "training.time_limit": 10, "training.checkpoint_every_steps": 1}
    ticking(monkeypatch)
    trainer = make_trainer("run", **limit)

    class Stop(Observer):
        def step(self, epoch, sums):
            if trainer.done == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.run(Stop())
    again = make_trainer.reopen(trainer)
    again.restore()
    assert again.clock.before > 1
    again.run()
    alone = make_trainer.finished("alone", **limit)
    assert abs(again.done - alone.done) <= 4


def test_a_run_that_was_stopped_before_its_first_step_with_its_time_up_makes_one_when_it_is_resumed(make_trainer, monkeypatch):
    ticking(monkeypatch)
    trainer = make_trainer("run", **{"training.epochs": 3, "training.time_limit": 0.1})
    trainer.signals.received = signal.SIGTERM
    with pytest.raises(InterruptedRunError):
        trainer.run()
    again = make_trainer.reopen(trainer)
    again.restore()
    assert (again.share, again.done) == (1, 0)
    again.run()
    assert (again.epoch, again.done) == (1, 1) and (again.folder.path / "last" / "model.safetensors").exists()


def test_time_that_has_gone_before_the_first_step_takes_nothing_of_the_warm_up(make_trainer, monkeypatch):
    monkeypatch.setattr(clocks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    now, before, steps = [0.0], 50, []
    limit = {"training.epochs": 4, "training.time_limit": 100, "schedule.warmup_epochs": 1}
    trainer = make_trainer("run", **limit)
    trainer.clock = Clock(100, before)
    trainer._share = lambda: trainer.clock.share(0)

    class Ended(Observer):
        def step(self, epoch, sums):
            steps.append(trainer.position(trainer.done - 1))
            now[0] += 75 / trainer.total  # slower than there is time for: two thirds of the steps are made
            if trainer.done == 8:
                trainer.signals.received = signal.SIGTERM

    with pytest.raises(InterruptedRunError):
        trainer.run(Ended())
    assert steps == pytest.approx([step * 1.5 for step in range(8)], abs=1)
    again = make_trainer.reopen(trainer)
    again.restore()
    assert again.share_before == trainer.share_before == 0.5
    assert again.position(8) == trainer.position(8)


def test_a_run_whose_time_was_up_makes_no_other_step_when_it_is_resumed(make_trainer, monkeypatch):
    ticking(monkeypatch)
    trainer = make_trainer.finished("run", **{"training.epochs": 1000, "training.time_limit": 5})
    again = make_trainer.reopen(trainer)
    again.restore()
    again.clock = Clock(None)  # as if it had been quicker this time
    again.run()
    assert (again.done, again.rows) == (trainer.done, trainer.rows)


# later than was planned


def test_a_finished_run_goes_on_by_a_schedule_of_its_own(pictures, tiny, tmp_path):
    settings = {**tiny, "optimizer.lr": 0.01, "training.epochs": 3, "schedule.warmup_epochs": 0}
    run = api.train(pictures, tmp_path / "run", **settings)
    first = rows_of(run.folder)
    api.resume(run.folder, epochs=7)
    rows = rows_of(run.folder)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6, 7] and rows[:3] == first
    rates = [row["lr"] for row in rows]
    assert rates[3] > rates[2] and rates[3:] == sorted(rates[3:], reverse=True) and rates[6] < 0.1 * rates[3]
    status = RunFolder(run.folder).standing
    assert (status["state"], status["epoch"], status["step"]) == ("finished", 7, rows[-1]["step"])
    assert RunFolder(run.folder).settings.schedule.extended_at == (3, first[-1]["step"])
    again = api.resume(run.folder, epochs=8)
    assert rows_of(again.folder)[-1]["epoch"] == 8


class Stop(Observer):
    def __init__(self, steps):
        self.left = steps

    def step(self, epoch, sums):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_an_extension_that_is_interrupted_resumes_to_the_same_weights(pictures, tiny, tmp_path):
    settings = {**tiny, "training.epochs": 1, "training.checkpoint_every_steps": 1, "model.dropout": 0.1}
    whole, broken = (api.train(pictures, tmp_path / name, **settings) for name in ("whole", "broken"))
    api.resume(whole.folder, epochs=3)
    with pytest.raises(KeyboardInterrupt):
        resume_run(broken.folder, lambda finished: None, {"training": {"epochs": 3}}, observer=Stop(3), transform=None)
    api.resume(broken.folder)
    one, other = ((folder / "last/model.safetensors").read_bytes() for folder in (whole.folder, broken.folder))
    assert one == other


def test_a_run_cannot_be_extended_to_what_it_has_nor_before_it_is_finished(pictures, tiny, tmp_path):
    run = api.train(pictures, tmp_path / "run", **{**tiny, "training.epochs": 2})
    with pytest.raises(ConfigError, match="has 2 epochs already"):
        api.resume(run.folder, epochs=1)
    status = json.loads((run.folder / "status.json").read_text())
    (run.folder / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    with pytest.raises(ConfigError, match="before the run is finished") as error:
        api.resume(run.folder, epochs=5)
    assert "first, then the same" in error.value.hint


def test_an_extension_that_cannot_begin_leaves_the_run_finished(pictures, tiny, tmp_path):
    data = shutil.copytree(pictures, tmp_path / "data")
    run = api.train(data, tmp_path / "run", **{**tiny, "training.epochs": 1})
    before = (run.folder / "status.json").read_text(), (run.folder / "config.yaml").read_text()
    (data / "red/0.png").rename(tmp_path / "away.png")
    with pytest.raises(DataError, match="other images"):
        api.resume(run.folder, epochs=2)
    assert ((run.folder / "status.json").read_text(), (run.folder / "config.yaml").read_text()) == before
    (tmp_path / "away.png").rename(data / "red/0.png")
    assert rows_of(api.resume(run.folder, epochs=2).folder)[-1]["epoch"] == 2


def test_a_fast_run_for_developers_is_not_extended(pictures, tiny, tmp_path):
    run = api.train(pictures, tmp_path / "run", fast_dev_run=True, **tiny)
    with pytest.raises(ConfigError, match="--fast-dev-run has one epoch"):
        api.resume(run.folder, epochs=5)


def test_the_next_step_is_taken_to_last_as_long_as_the_quickest_one(make_trainer):
    trainer = make_trainer("run", **{"training.epochs": 1, "training.batch_size": 4})
    step = trainer._step

    def slow(batch):
        if trainer.done == 0:
            time.sleep(0.5)
        step(batch)

    trainer._step = slow
    trainer.run()
    assert 0 < trainer.step_seconds < 0.5


def test_time_that_goes_by_in_a_validation_begins_no_other_epoch(make_trainer):
    trainer = make_trainer("run", **{"training.epochs": 1000, "training.time_limit": 1000})
    validation = trainer._validation

    def slow():
        trainer.clock.before += 1000
        return validation()

    trainer._validation = slow
    trainer.run()
    assert trainer.epoch == 1 and trainer.done == trainer.steps


def test_signals_are_told_from_process_to_process():
    error = pickle.loads(pickle.dumps(InterruptedRunError(15, Path("run"), "vitrail resume run", what="interrupted")))
    assert (error.exit_code, error.where, error.hint, error.what) == (143, Path("run"), "vitrail resume run", "interrupted")


def test_a_finished_run_that_keeps_its_last_epoch_waits_for_no_better_one(pictures, tiny, tmp_path):
    run = api.train(pictures, tmp_path / "run", **{**tiny, "training.keep": "last"})
    with pytest.raises(ConfigError, match="is worse than its best one"):
        api.resume(run.folder, epochs=len(rows_of(run.folder)) + 1, patience=1)
