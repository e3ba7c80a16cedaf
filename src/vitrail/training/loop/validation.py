"""Validation of a run: its items, its time, and the choice of the model to keep."""

import math
from typing import Any

from vitrail.data.loading.batches import Samples
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import some_items
from vitrail.errors import DataError
from vitrail.runtime.device import pick_device
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import Signals
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.metrics import described, of_epoch, rank
from vitrail.tasks.task import Metrics
from vitrail.training.loop.clock import shown_seconds
from vitrail.training.loop.time_budget import TRIAL, TimeBudget
from vitrail.training.runs.state import RunState


class Validation(RunState):
    """A run with the items that decide which of its models is kept."""

    items_in_batch: int
    budget: TimeBudget
    val_loader: EpochLoader
    observer: Observer
    signals: Signals

    def loader(self, dataset: Samples, *, shuffle: bool = False, balance: bool = False) -> EpochLoader:
        """Return a loader of this process's part of each batch, with the run's batch size and workers."""
        has_images = isinstance(dataset, ImageDataset)  # texts are in memory, and need no workers by default
        return EpochLoader(
            dataset,
            self.settings.training.batch,
            shuffle=shuffle,
            workers=self.settings.workers if has_images else self.settings.data.workers or 0,
            balance=balance,
            part=(self.group.rank, self.group.count),
            device=pick_device(self.settings.training.device),
        )

    def subset(self, items: list[Any]) -> list[Any]:
        """Return two batches of random items for ``fast_dev_run``, else all items."""
        t = self.settings.training
        return some_items(items, 2 * self.items_in_batch, t.seed) if t.fast_dev_run else items

    @property
    def validation(self) -> list[Any]:
        """The items that epochs are compared on: training items if there are no others; with a time limit maybe not all."""
        return self.budget.validated

    @property
    def _keeps_last(self) -> bool:
        return self.settings.training.keep == "last"

    def measure(self, seconds: float, *, reported: bool = False) -> None:
        """Measure, within about ``seconds``, how long the end of the run takes."""
        if self.settings.training.parallel == "fsdp" and self.learner.task.unit == "tokens":
            return  # processes that generate different numbers of tokens would wait for each other in sharded layers
        options: dict[str, Any] = {"seconds": self.group.broadcast(seconds), "reported": reported}
        self.budget.measure(self.learner.evaluated, self.settings.training.batch, self.device, self.group, **options)

    def _plan(self) -> bool:
        """Choose how many validation items there is time for, and return whether some are dropped."""
        every = len(self.validation)
        if self.clock.limit is None:
            return False
        self.observer.begin("measuring how long scoring takes", len(self.budget.reported))
        self.measure(TRIAL * self.clock.left)
        if self.compared is None:
            self.budget.choose(self.group.broadcast(self.clock.left))
            self.compared = len(self.validation)
        else:
            self.budget.take(self.compared)
        if self.compared < every:
            self.val_loader = self.loader(self.learner.task.dataset(self.validation))
            took = shown_seconds(every * self.budget.validating)
            what = f"epochs are compared on {self.compared:,} of {every:,} validation items: all of them take about {took}"
            self.folder.tell(what, self.observer)
        return self.compared < every

    def _try_mean(self) -> None:
        """Save the average of the last epochs' weights if it is better than the best model; see ``training.average``."""
        if len(self.last_epochs) < 2:
            return
        self.save()  # before the task holds the average, which a signal must not save
        mean = self.last_epochs.mean(self.learner.task.carried_parts().state_dict())
        self.observer.begin("evaluating the mean of the last epochs on val", len(self.val_loader.dataset))
        with self.learner.holding(mean):
            scores = of_epoch(self._validation().scores())
        row = self.rows[-1] | {f"val_{name}": value for name, value in scores.items()} | {"averaged": len(self.last_epochs)}
        if self._keeps_last:  # with few items, only the loss compares epochs reliably
            better = bool(row["val_loss"] <= self.rows[-1]["val_loss"])
        else:
            better = self.best is None or rank(row) > rank(self.best)
        better = better and math.isfinite(scores["loss"])
        if better:
            self.best, self.saved = row, None
            self.save_model("best", row, mean)
            self.save()
        outcome = "kept" if better else "no better"
        self.folder.tell(f"the mean of the last {row['averaged']} epochs: {outcome}, {described(row, 'val_')}", self.observer)

    def _validation(self) -> Metrics:
        """Return the metrics on the validation items; if one cannot be read, the state is saved first."""
        task = self.learner.evaluated
        metrics = task.metrics()
        metrics.take_items(self.validation)
        try:
            with answering(task, self.device, follow=True) as answer:
                return evaluate(answer, self.val_loader, metrics, on_batch=self._looked_at, group=self.group)
        except DataError:
            self.save()
            raise

    def _looked_at(self, images: int) -> None:
        """Count evaluated images, and stop if a signal arrived."""
        self.observer.advance(images)
        if number := self.signal():
            self.save()
            self.stop(number)

    def signal(self) -> int:
        """Return the number of a signal that any process received, or 0."""
        (number,) = self.group.all_reduce_max(self.signals.received)
        return number
