"""The training loop: epochs, validation, saving models and checkpoints, and stopping."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import torch

from vitrail.config.settings import RunSettings
from vitrail.data.images.transform import Transform
from vitrail.data.items import Data
from vitrail.data.loading.batches import Batch, on_device
from vitrail.errors import VitrailError
from vitrail.files import write_bytes
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.observer import Observer, Row
from vitrail.runtime.processes import ALONE, Processes
from vitrail.runtime.signals import Signals
from vitrail.tasks.metrics import of_epoch, rank
from vitrail.tasks.task import Task
from vitrail.training.finetune.features import remove_features
from vitrail.training.finetune.freezing import start_training
from vitrail.training.loop import parallel
from vitrail.training.loop.clock import Clock, OutOfTimeError
from vitrail.training.loop.learner import Learner
from vitrail.training.loop.schedule import warmup_steps
from vitrail.training.loop.time_budget import TimeBudget
from vitrail.training.loop.validation import Validation
from vitrail.training.run_data import BeforeSteps, FirstModel, run_data_of
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.runs.state import seed_of
from vitrail.training.runs.tracking import Tracker, open_tracker

FAILED_STEPS = 3
"""Steps in a row with a loss or gradient that is not finite, after which a run stops."""
HARDLY = 100
"""Steps of a first epoch after which the training counts as more than just begun."""
SAVING = 0.02
"""Fraction of the time that checkpoints at the end of short epochs may take."""
PICTURES = 10
"""Number of epochs whose end is pictured."""


def shown_epochs(epochs: int) -> set[int]:
    """Return the epochs whose end is pictured: the first, the last, and others, closer to each other at the beginning."""
    return {round(epochs ** (number / (PICTURES - 1))) for number in range(PICTURES)}


class Trainer(Validation):
    """A run with its model, optimizer, schedule, data and folder, in one of the processes."""

    def __init__(
        self,
        settings: RunSettings,
        task: Task,
        data: Data,
        folder: RunFolder,
        *,
        transform: Transform | None = None,
        first: FirstModel | None = None,
        group: Processes = ALONE,
        signals: Signals | None = None,
        clock: Clock | None = None,
    ):
        self.settings, self.data, self.folder = settings, data, folder
        self.group, self.signals = group, signals or Signals()
        t, d = settings.training, settings.data
        self.kind = run_data_of(settings)
        self.items_in_batch = task.items_in(t.batch)
        training = task.dataset(self.subset(data.split("train")), settings.augmentation, seed=t.seed, transform=transform)

        self.train_loader = self.loader(training, shuffle=True, balance=d.balance == "sampling")
        self.budget = TimeBudget(
            self.subset(data.split(data.evaluation_split)),
            self.subset(data.splits["val"] or data.split("train")),
            1 + bool(t.average) + task.report_needs_validation,
        )
        self.val_loader = self.loader(task.dataset(self.validation))
        self.first = first
        self.epochs = 1 if t.fast_dev_run else max(t.epochs, math.ceil(t.min_steps / self.steps))
        if t.tune == "head" and self.kind.has_first_model(settings, task):
            self.epochs = 0
        self.first_epoch, self.first_step = settings.schedule.extended_at
        total = (self.epochs - self.first_epoch) * self.steps
        self.total = self.first_step + total
        warmup = warmup_steps(settings.schedule, epoch=self.steps, total=total)
        learner = Learner(settings, task, total=total, warmup=warmup, epoch=self.steps, group=group)
        super().__init__(settings, data, folder, learner, group)
        self.clock = clock or Clock(t.time_limit)
        self.share = float(first is not None and first.is_over)
        self.step_seconds = 0.0
        """Seconds of this process's fastest step; a first step that compiles the model is not counted."""
        self.observer = Observer()
        if group.rank:
            torch.manual_seed(seed_of(t.seed, self.done, group.rank))  # different dropout in each process

    @property
    def steps(self) -> int:
        """Number of steps in an epoch."""
        return len(self.train_loader)

    @property
    def stopped_early(self) -> bool:
        """True if the time limit ended the training in its first steps, unless there was a first model, which is trained."""
        return self.share >= 1 and not self.first_epoch and self.done < min(self.steps, HARDLY) and self.rows[0]["epoch"] > 0

    @property
    def made_of_all(self) -> str:
        """Progress in words, ``120 of 1,000 steps``."""
        return f"{self.done:,} of {self.total:,} step{'s' if self.total > 1 else ''}"

    def run(self, observer: Observer | None = None) -> None:
        """Train to the end, from the current state.

        Raises:
            DivergedError: the loss or the gradient is not finite; the last checkpoint is kept.
            DataError: an image cannot be read; the state before it is saved.
            InterruptedRunError: after Ctrl-C or SIGTERM, once the state is saved.
        """
        self.observer = observer or Observer()
        self.observer.start(self.epochs, self.total, self.done)
        track = self.settings.training.track if self.group.first else "none"
        with self.group.together():
            settings = self.settings.model_dump(mode="json")
            self.track = open_tracker(track, self.folder.path, epochs_done=self.epoch, settings=settings)
        try:
            with kept_memory():
                fewer = self._plan()
                if self.first and not self.rows:
                    own = of_epoch(self._validation().scores()) if fewer else {}
                    self._keep_first(self.first.row | {f"val_{name}": value for name, value in own.items()})
                if self.made or not self.is_over:
                    self._before_steps()
                while self.made or not self.is_over:
                    self._epoch(self.epoch)
                self._try_mean()
        finally:
            with contextlib.suppress(Exception):  # the tracker is code of another library
                self.track.close()
            self.train_loader.close()
            self.val_loader.close()
        self.save_model("last", self.rows[-1])

    def finish(self, **result: Any) -> None:
        """Record that the run and its report are finished, with the best model's ``result``."""
        self.folder.write_status("finished", **self._progress(), **result)

    def _share(self) -> float:
        """Return the used fraction of the time limit, after the end of the run, the next step and saving are set aside."""
        return self.clock.share(self.budget.seconds() + self.step_seconds + 2 * self.saving)

    def _before_steps(self) -> None:
        """Let the run's kind of data compute what every step needs, in at most half of the remaining time."""
        end = self.clock.spent + self.clock.left / 2

        def on_batch(images: int) -> None:
            self._looked_at(images)
            (late,) = self.group.all_reduce_max(self.clock.limit is not None and self.clock.spent > end)
            if late:
                raise OutOfTimeError

        try:
            samples, validation = self.train_loader.dataset, self.val_loader.dataset
            work = BeforeSteps(self.learner, samples, validation, self.folder, self.loader, self.observer, on_batch)
            self.kind.before_steps(work)
        except OutOfTimeError as consequence:
            self.folder.tell(str(consequence), self.observer)

    def _keep_first(self, row: Row) -> None:
        """Save the model that the run has before its first epoch."""
        self.rows, self.best = [row], row
        with self.group.together(), self._room_for(2**10):
            self.folder.write_rows(self.rows)
        self.save_model("best", row)
        self.save()
        remove_features(self.folder)
        self.observer.epoch(row)

    def _epoch(self, epoch: int) -> None:
        start_training(self.learner.model, self.settings)
        start = time.perf_counter()
        for batch in self._batches(epoch):
            self._step(on_device(batch, self.device))
            self.done += 1
            seconds = max(time.perf_counter() - start, 1e-9)
            start = time.perf_counter()
            self.sums.seconds += seconds
            if self.step_seconds or not self.settings.training.compile or self.done > self.first_step + 1:
                self.step_seconds = min(seconds, self.step_seconds or seconds)
            self.observer.step(epoch, self.sums)
        self._end_epoch(epoch)
        slow = self.clock.limit is not None and self.learner.task.scores_slower
        if slow and self.group.broadcast(self.budget.is_worth_a_trial):
            self.measure(self.budget.tried, reported=True)  # texts get shorter as the model learns, and scoring faster
        (share,) = self.group.all_reduce_max(int(1e6 * self._share()))
        self.share = max(self.share, share / 1e6)  # checked here, to avoid an epoch of one step and its evaluation
        cheap = time.monotonic() - self.saved_at >= self.saving / SAVING
        if any(self.group.all_reduce_max(cheap, self.is_due(), self.is_over)):
            self.save()

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch; between two batches the run may save or stop."""
        batches = self.train_loader.epoch(epoch, skip=self.made)
        while self.made < self.steps and (self.share < 1 or self.done == 0):
            batch, failure = None, None
            try:
                batch = next(batches)
            except VitrailError as error:
                failure = error
            self._pause(failure)
            assert batch is not None
            yield batch

    def _pause(self, failure: VitrailError | None = None) -> None:
        """Save if a checkpoint is due; stop all processes together if one received a signal or failed."""
        number, failed, due, share = self.group.all_reduce_max(
            self.signals.received, failure is not None, self.is_due(), int(1e6 * self._share())
        )
        self.share = max(self.share, share / 1e6)
        if self.done == self.first_step:
            self.share_before = self.share
        if (failed and self.done) or number or due:
            self.save()
        if failed:
            self.group.raise_together(failure)
        if number:
            self.stop(number)

    def _step(self, batch: Batch) -> None:
        """Train on this process's part of the next batch; after `FAILED_STEPS` steps in a row that are not finite, stop."""
        loader, number = self.train_loader, self.made
        size, own = loader.size(number), len(loader.places(number))
        step = self.learner.step(batch, done=self.position(self.done), size=size, own=own, units=loader.units(number))
        self.not_finite = self.not_finite + 1 if step.failure else 0
        if self.not_finite == FAILED_STEPS:
            self._diverged(f"{step.failure}, and was not finite in {FAILED_STEPS} steps in a row")
        if step.failure:
            self.folder.tell(f"step {self.done + 1} is left out: {step.failure}", self.observer)
        if math.isfinite(step.loss):
            self.sums.add(step.loss, step.counts, step.units)

    def _end_epoch(self, epoch: int) -> None:
        self.observer.begin("evaluating val", len(self.val_loader.dataset))
        self._looked_at(0)
        begun = time.perf_counter()
        metrics = self._validation()
        scores = metrics.scores()
        (micro,) = self.group.all_reduce_max(int(1e6 * (time.perf_counter() - begun)))
        self.budget.validated_in(micro / 1e6, scores_slower=self.learner.task.scores_slower)
        if not math.isfinite(scores["loss"]):
            self._diverged(f"the validation loss is {scores['loss']}")
        if epoch and (collapse := metrics.collapse()):  # in the first epoch a model may not have learned anything yet
            self._diverged(*collapse)
        weights = parallel.whole(self.learner.evaluated.state_dict())
        self._require_finite(weights, "weight")
        row: Row = {"epoch": epoch + 1, "step": self.done, "lr": self.learning_rate}
        row |= {f"train_{name}": value for name, value in self.sums.means.items() if name != self.sums.rate_name}
        row |= {f"val_{name}": value for name, value in of_epoch(scores).items()}
        row |= {self.sums.rate_name: self.sums.rate, "seconds": self.sums.seconds}
        self.rows.append(row)
        self.sums = self.no_sums()
        picture = metrics.picture() if epoch + 1 in shown_epochs(self.epochs) else None
        with self.group.together(), self._room_for(len(self.rows) * 2**10):
            self.folder.write_rows(self.rows)
            if picture is not None and self.group.first:
                write_bytes(self.folder.path / "plots" / f"epoch-{epoch + 1:06d}.png", picture)
        if self._keeps_last or self.best is None or rank(row) >= rank(self.best):
            self.best = row
            self.save_model("best", row, weights)
            if not self._keeps_last:  # else the message would appear in every epoch
                self.observer.kept(epoch + 1)
        self.last_epochs.add(weights)
        self.folder.log("  ".join(f"{name} {value:.6g}" for name, value in row.items()))
        self._track(row)
        self.observer.epoch(row)

    def _track(self, row: Row) -> None:
        """Pass an epoch to the tracker; if that fails, the run continues without it."""
        try:
            self.track(row)
        except Exception as error:  # raised by another library, a server or the network
            self.track = Tracker()
            self.folder.tell(f"tracking has failed and ends here: {type(error).__name__}: {error}", self.observer)
