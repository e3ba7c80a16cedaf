"""Evaluation of a model on the items of a loader, batch by batch; only the metrics stay in memory."""

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
    """Yield a function from a batch to a task's predictions, in evaluation mode; with ``follow`` those of `Task.follow`."""
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

    Each process evaluates its part of every batch; all processes return the same result.

    Args:
        answer: a function from a batch to a model's predictions.
        loader: the loader of this process's parts of the batches.
        metrics: the metrics to update.
        on_batch: receives the size of each batch, summed over all processes.
        group: the processes that share the work.
    """
    for number, batch in enumerate(group.in_step(loader.epoch(), len(loader))):
        own = len(loader.places(number))  # an empty part of a batch was filled with one image
        answers = answer(batch)
        metrics.update({name: a[:own] for name, a in answers.items()}, {name: t[:own] for name, t in batch.items()})
        if on_batch:
            on_batch(loader.size(number))
    metrics.reduce(group)
    return metrics


class Request(NamedTuple):
    """The arguments of `vitrail.evaluate`, for the module ``evaluate`` of a task's room."""

    model: Any
    """The opened predictor; for a task that opens models itself, the MODEL (path or loaded)."""
    reference: Any
    """The MODEL as the user gave it."""
    data: str | Path | None
    """The source of the items; None for the data of the model's run."""
    split: str | None
    options: Any
    """The `Options` of the task."""
    note: Note


class EvaluationOptions(Options):
    """Evaluation options of several tasks."""

    batch_size: int = 64
    """Items per batch."""
    workers: int | None = None
    """Number of processes that prepare items; None for the default of the device."""


class TableOptions(EvaluationOptions):
    """Options of evaluations that write a table."""

    table: OptionPath | None = None
    """A CSV file to write, which must not exist, with a row for each item."""


@dataclass
class Evaluation(ABC):
    """Items to evaluate a model on; created by the ``evaluate`` of a task's room."""

    items: Sequence[Any]
    """The items, one for each step of the progress bar."""
    split: str
    reads_here: bool = field(default=False, kw_only=True)
    """True if items are read in this process unless the user sets ``workers``."""

    @abstractmethod
    def run(self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE) -> Any:
        """Return the metrics of all items; all processes return the same result."""

    def rows(self) -> Sequence[Sequence[str]]:
        """Return a table of the items with their predictions, the header first; call `run` before."""
        raise NotImplementedError


@dataclass
class StreamedEvaluation(Evaluation):
    """An evaluation of items that a loader reads batch by batch; only the metrics stay in memory."""

    dataset: Samples
    """The items as the network takes them."""
    metrics: Any
    """The `Metrics`."""
    answer: AbstractContextManager[Callable[[Batch], Answers]]
    """A context with the function from a batch to predictions."""
    batch_size: int

    @classmethod
    def of_task(cls, task: Task, items: Sequence[Any], split: str, batch_size: int, *, keep: bool = True, **fields: Any) -> Self:
        """Return the evaluation with the task's own dataset, predictions and metrics, computed by torch.

        ``keep`` is passed to `Task.metrics`, and ``fields`` to the constructor.
        """
        device = pick_device()
        metrics, opened = task.metrics(keep=keep), answering(task.to(device), device)
        return cls(items, split, task.dataset(items), metrics, opened, batch_size, **fields)

    def run(self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE) -> Any:
        self.metrics.take_items(self.items)
        loader = EpochLoader(self.dataset, self.batch_size, shuffle=False, workers=workers, part=(group.rank, group.count))
        with kept_memory(), self.answer as answer:
            return evaluate(answer, loader, self.metrics, on_batch=on_batch, group=group)
