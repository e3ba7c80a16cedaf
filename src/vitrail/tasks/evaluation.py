"""The metrics of a model on the images of a loader, batch by batch: only the metrics keep anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from vitrail.data.loading.batches import Batch, on_device
from vitrail.data.loading.loader import EpochLoader
from vitrail.models.inference import evaluation_mode
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.task import Answers, Metrics, Task

M = TypeVar("M", bound=Metrics)


@contextmanager
def answering(task: Task, device: torch.device, *, follow: bool = False) -> Iterator[Callable[[Batch], Answers]]:
    """A task's answers for `evaluate`, in evaluation mode; afterwards its mode is as before. ``follow`` is for `Task.follow`."""
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
    """The metrics with all batches of a loader taken up.

    Each of several processes evaluates its part of every batch, which its loader gives, and all have the same result.

    Args:
        answer: a batch to a model's answers.
        loader: of images with their targets.
        metrics: updated with every batch.
        on_batch: hears the size of each batch, all processes together.
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
