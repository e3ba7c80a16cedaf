"""Estimate of the time that the end of a run takes, and the number of items that can be scored within a time limit."""

import math
import time
from collections.abc import Sequence
from typing import Any

import torch

from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import some_items
from vitrail.runtime.processes import Processes
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.task import Task

SCORING, PASS = 0.5, 0.1
"""Fractions of the time left before the first step: for the end of a run, and for one pass over the validation items."""
TRIAL, MOST = 0.04, 64
"""Fraction of the time for trials, and the most items in a trial."""
LEAST, SHORT = 2, 2.0
"""Least number of scored items, and seconds that any pass may take."""
SLOWEST = 8.0
"""Largest assumed slowdown on a busy machine."""


class TimeBudget:
    """Estimated seconds of a run after its last step, from measurements on a few items.

    Args:
        reported: items that the best model's metrics are reported on.
        validated: items that epochs are compared on; `choose` may remove some.
        passes: number of evaluations of ``validated`` after the last step.
    """

    def __init__(self, reported: Sequence[Any], validated: Sequence[Any], passes: int):
        self.reported, self.validated, self.passes = list(reported), list(validated), passes
        self.reporting = self.validating = 0.0
        """Measured seconds per item."""
        self.report, self.room = 0.0, math.inf
        """Seconds for writing the report, and the most seconds for scoring its items."""
        self.tried, self.tried_at = 0.0, time.monotonic()

    def measure(
        self, task: Task, batch_size: int, device: torch.device, group: Processes, *, seconds: float, reported: bool = False
    ) -> None:
        """Measure the time per item, within about ``seconds``; all processes must call this together.

        With ``reported``, only the items of the report are measured.
        """
        begun, used = time.perf_counter(), time.process_time()
        options: dict[str, Any] = {"batch_size": batch_size, "device": device, "group": group, "seconds": seconds}
        if not reported:
            self.validating = self._trial(task, self.validated, follow=True, **options)
        if reported or task.scores_slower:
            self.reporting = self._trial(task, self.reported, follow=False, **options)
        else:
            self.reporting = self.validating
        took = time.perf_counter() - begun
        slow = took / max(time.process_time() - used, 1e-3)
        took_most, slowest = group.all_reduce_max(int(1e6 * took), int(1e6 * min(SLOWEST, slow)))
        self.tried, self.tried_at = took_most / 1e6, time.monotonic()
        self.report = task.report_seconds * max(1.0, slowest / 1e6)

    @property
    def is_worth_a_trial(self) -> bool:
        """True if another trial is short compared to the time since the last one."""
        return TRIAL * (time.monotonic() - self.tried_at) >= self.tried

    def _trial(
        self,
        task: Task,
        items: Sequence[Any],
        batch_size: int,
        device: torch.device,
        group: Processes,
        *,
        follow: bool,
        seconds: float,
    ) -> float:
        """Return the seconds per item, measured on growing numbers of items until about ``seconds`` have passed."""
        count, most, spent = 1, min(MOST, len(items)), 0.0
        while True:
            some, metrics = some_items(items, count, seed=0), task.metrics(keep=not follow)
            metrics.take_items(some)
            loader = EpochLoader(task.dataset(some), batch_size, shuffle=False, part=(group.rank, group.count))
            begun = time.perf_counter()
            with answering(task, device, follow=follow) as answer:
                evaluate(answer, loader, metrics, group=group)
            (micro,) = group.all_reduce_max(int(1e6 * (time.perf_counter() - begun)))
            spent += micro / 1e6
            warmed = count > 1 or micro / 1e6 > seconds  # the first item may include compiling and reading from disk
            if count >= most or (warmed and spent + 2 * micro / 1e6 > seconds):
                return micro / 1e6 / max(1, count)
            count = min(most, 4 * count)

    def choose(self, left: float) -> None:
        """Keep as many validation items as there is time for, and limit the report's time; ``left`` seconds remain."""
        room = max(0.0, SCORING * left - self.report)
        self.take(affordable(min(PASS * left, room / 2 / self.passes), self.validating, len(self.validated)))
        self.room = max(0.0, room - self.passes * len(self.validated) * self.validating)

    def take(self, count: int) -> None:
        """Keep ``count`` validation items, the same in every call."""
        self.validated = some_items(self.validated, count, seed=0)

    def validated_in(self, seconds: float, *, scores_slower: bool) -> None:
        """Record that a pass over the validation items took ``seconds``."""
        self.validating = seconds / max(1, len(self.validated))
        if not scores_slower:
            self.reporting = self.validating

    def seconds(self) -> float:
        """Return the estimated seconds of the end of the run."""
        return self.passes * len(self.validated) * self.validating + min(self.room, self.scoring) + self.report

    @property
    def scoring(self) -> float:
        """Estimated seconds for scoring all items of the report."""
        return len(self.reported) * self.reporting

    def scored(self, left: float) -> list[Any]:
        """Return the items to score for the report, with ``left`` seconds to go."""
        count = affordable(left - self.report, self.reporting, len(self.reported))
        return self.reported if count == len(self.reported) else some_items(self.reported, count, seed=0)


def affordable(seconds: float, each: float, count: int) -> int:
    """Return how many of ``count`` items, at ``each`` seconds per item, fit into ``seconds``; at least `LEAST`."""
    seconds = max(SHORT, seconds)
    return count if count * each <= seconds else min(count, max(LEAST, int(seconds / each)))
