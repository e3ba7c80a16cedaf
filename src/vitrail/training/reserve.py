"""How long the end of a run takes, for which a time limit leaves room."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from vitrail.data.loader import EpochLoader
from vitrail.data.order import some_items
from vitrail.runtime.processes import Processes
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.task import Metrics, Task

PART = 16
"""One in so many items is tried."""
MOST = 64
"""Items that are tried, at most."""


class Reserve:
    """Seconds that a run needs after its last step.

    Args:
        reported: the items that the best model will be reported on.
        validated: those that epochs are compared by.
        times: how often these are evaluated after the last step.
    """

    def __init__(self, reported: Sequence[Any], validated: Sequence[Any], times: int):
        self.reported, self.validated, self.times, self.slow = list(reported), list(validated), times, 0.0

    def measure(self, task: Task, batch_size: int, device: torch.device, group: Processes) -> None:
        """Try how long slow answers take, on some of the items; all processes take part."""
        if not task.answers_slowly:
            return

        def of_each(items: list[Any], metrics: Metrics, *, follow: bool) -> float:
            some = some_items(items, min(MOST, -(-len(items) // PART)), seed=0)
            metrics.take_items(some)
            loader = EpochLoader(task.dataset(some), batch_size, shuffle=False, part=(group.rank, group.count))
            begun = time.perf_counter()
            with answering(task, device, follow=follow) as answer:
                evaluate(answer, loader, metrics, group=group)
            return (time.perf_counter() - begun) / len(some)

        followed = of_each(self.validated, task.metrics(), follow=True)
        answered = of_each(self.reported, task.metrics(keep=True), follow=False) if self.reported else 0.0
        self.slow = answered * len(self.reported) + followed * self.times * len(self.validated)

    def seconds(self, rate: float) -> float:
        """In all, where so many items a second are learned from: evaluating one takes about a third of that."""
        evaluated = len(self.reported) + self.times * len(self.validated)
        return self.slow + (evaluated / (3 * rate) if rate else 0.0)
