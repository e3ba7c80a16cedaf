"""Timing of several functions in turns."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

WARM = 2
"""Warm-up calls before the timing."""
TURN = 0.2
"""Minimum seconds of a turn."""
SETTLE = 0.06
"""Seconds between turns: ONNX Runtime's threads spin for this long after their work, which would slow the next function."""


@dataclass(frozen=True)
class Timing:
    """Durations of calls, each with ``images`` images."""

    images: int
    seconds: tuple[float, ...]

    @property
    def images_per_second(self) -> float:
        """Return the images per second of the median call."""
        return self.images / float(np.median(self.seconds))

    def percentile(self, percent: float) -> float:
        """Return a percentile of the durations, in milliseconds."""
        return 1000 * float(np.percentile(self.seconds, percent))


def timed(works: Mapping[str, Callable[[Tensor], object]], pixels: Tensor, *, seconds: float = 1.0) -> dict[str, Timing]:
    """Time several functions on the same images, in turns, so that a slow phase of the machine affects all of them.

    Args:
        works: functions by name.
        pixels: their input, (B, C, H, W).
        seconds: minimum time for each function; each is called at least three times.
    """
    for work in works.values():
        for _ in range(WARM):
            work(pixels)
    times: dict[str, list[float]] = {name: [] for name in works}
    while any(len(own) < 3 or sum(own) < seconds for own in times.values()):
        for name, work in works.items():
            time.sleep(SETTLE)
            times[name] += turn(partial(work, pixels), min(TURN, seconds))
    return {name: Timing(len(pixels), tuple(own)) for name, own in times.items()}


def turn(work: Callable[[], object], seconds: float) -> list[float]:
    """Call ``work`` until ``seconds`` have passed, at least once; return the duration of each call in seconds."""
    found: list[float] = []
    while sum(found) < seconds:
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found
