"""Evaluation of a model on the items of a loader, batch by batch: only the metrics hold anything."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import torch

from vitrail.data.loading.batches import Batch, Samples, on_device
from vitrail.data.loading.loader import EpochLoader
from vitrail.models.inference import evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.observer import Note
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.options import OptionPath, Options
from vitrail.tasks.task import Answers, Metrics, Task

M = TypeVar("M", bound=Metrics)


@contextmanager
def answering(task: Task, device: torch.device, *, follow: bool = False) -> Iterator[Callable[[Batch], Answers]]:
    """Open a function from a batch to a task's predictions, in evaluation mode; ``follow`` is for `Task.follow`."""
    answer = task.follow if follow else task.answer
    with evaluation_mode(task), torch.no_grad():
        yield lambda batch: answer(on_device(batch, device))


def evaluate(
    answer: Callable[[Batch], Answers],
    loader: EpochLoader,
    metrics: M,
    *,
    on_batch: Callable[[int], None] | None = None,
    group: Processes = ALONE,
) -> M:
    """Return the metrics, updated with all batches of a loader.

    Each of several processes evaluates its part of every batch, which its loader gives, and all have the same result.

    Args:
        answer: a batch to a model's predictions.
        loader: of images with their targets.
        metrics: updated with every batch.
        on_batch: gets the size of each batch, all processes together.
        group: the processes that do it together.
    """
    for number, batch in enumerate(group.in_step(loader.epoch(), len(loader))):
        own = len(loader.places(number))  # a part of a batch that has no image has been given one
        answers = answer(batch)
        metrics.update({name: a[:own] for name, a in answers.items()}, {name: t[:own] for name, t in batch.items()})
        if on_batch:
            on_batch(loader.size(number))
    metrics.reduce(group)
    return metrics


class Request(NamedTuple):
    """Arguments of `vitrail.evaluate`, as the ``evaluate`` of a task's room takes them."""

    model: Any
    """The predictor of a MODEL; or the MODEL, or what is loaded of it, where the room opens it by itself."""
    reference: Any
    """The MODEL as it was given."""
    data: str | Path | None
    """The source of the items; None for those of the run that the model comes from."""
    split: str | None
    options: Any
    """The `Options` of the task."""
    note: Note


class EvaluationOptions(Options):
    """Options that evaluations of several tasks take."""

    batch_size: int = 64
    """Items that are predicted together."""
    workers: int | None = None
    """Processes that prepare items."""


class TableOptions(EvaluationOptions):
    """Options of evaluations that write a table."""

    table: OptionPath | None = None
    """A CSV file to write, which must not exist, with a row for each item."""


@dataclass
class Evaluation(ABC):
    """Items to evaluate a model on; created by the ``evaluate`` of a task's room."""

    items: Sequence[Any]
    """As many as are counted when they are done."""
    split: str
    reads_here: bool = field(default=False, kw_only=True)
    """True where other processes read the items only on request."""

    @abstractmethod
    def run(self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE) -> Any:
        """Return the metrics of all items; of several processes each has the whole."""

    def rows(self) -> Sequence[Sequence[str]]:
        """Return a table of the items with their predictions, its head first, after `run`."""
        raise NotImplementedError


@dataclass
class StreamedEvaluation(Evaluation):
    """Items that a loader reads, batch by batch: only the metrics hold anything."""

    dataset: Samples
    """The items as the network takes them."""
    metrics: Any
    """The `Metrics`."""
    answer: AbstractContextManager[Callable[[Batch], Answers]]
    """Opens the function that predicts a batch."""
    batch_size: int

    @classmethod
    def of_task(cls, task: Task, items: Sequence[Any], split: str, batch_size: int, *, keep: bool = True, **fields: Any) -> Self:
        """Return the evaluation of a model in Python as its task does it; ``keep`` as of `Task.metrics`."""
        device = pick_device()
        metrics, opened = task.metrics(keep=keep), answering(task.to(device), device)
        return cls(items, split, task.dataset(items), metrics, opened, batch_size, **fields)

    def run(self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE) -> Any:
        self.metrics.take_items(self.items)
        loader = EpochLoader(self.dataset, self.batch_size, shuffle=False, workers=workers, part=(group.rank, group.count))
        with kept_memory(), self.answer as answer:
            return evaluate(answer, loader, self.metrics, on_batch=on_batch, group=group)
