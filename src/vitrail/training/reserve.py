"""How long the end of a run takes, for which a time limit leaves room."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from vitrail.data.loader import EpochLoader
from vitrail.data.order import some_items
from vitrail.runtime.processes import Processes
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.task import Task

PART = 16
"""Of so many items one is tried, ..."""
MOST = 64
"""... and no more than this."""


class Reserve:
    """Seconds that a run needs after its last step.

    Args:
        reported: the items that the best model will be reported on.
        validated: how many others are evaluated before.
    """

    def __init__(self, reported: Sequence[Any], validated: int):
        self.reported, self.evaluated, self.search = list(reported), len(reported) + validated, 0.0

    def measure(self, task: Task, batch_size: int, device: torch.device, group: Processes) -> None:
        """Try how long the answers of the report take, on some of its items; all processes take part."""
        if not (task.answers_slowly and self.reported):
            return
        some = some_items(self.reported, min(MOST, -(-len(self.reported) // PART)), seed=0)
        loader = EpochLoader(task.dataset(some), batch_size, shuffle=False, part=(group.rank, group.count))
        begun = time.perf_counter()
        with answering(task, device) as answer:
            evaluate(answer, loader, task.metrics(keep=True), group=group)
        self.search = (time.perf_counter() - begun) * len(self.reported) / len(some)

    def seconds(self, rate: float) -> float:
        """In all, where so many items a second are learned from: evaluating one takes about a third of that."""
        return self.search + (self.evaluated / (3 * rate) if rate else 0.0)
