"""How fast something answers, side by side with others."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

WARM = 2
"""Calls before anything is timed."""
TURN = 0.2
"""Seconds of a turn, at least."""
SETTLE = 0.06
"""Seconds between turns: ONNX Runtime's threads go on turning for so long after their work, at the cost of whoever is next."""


@dataclass(frozen=True)
class Timing:
    """Seconds of calls that answer a number of images each."""

    images: int
    seconds: tuple[float, ...]

    @property
    def images_per_second(self) -> float:
        """Return the images per second of the median call."""
        return self.images / float(np.median(self.seconds))

    def percentile(self, percent: float) -> float:
        """The time that so many per cent of the calls take at most, in milliseconds."""
        return 1000 * float(np.percentile(self.seconds, percent))


def timed(works: Mapping[str, Callable[[Tensor], object]], pixels: Tensor, *, seconds: float = 1.0) -> dict[str, Timing]:
    """Several ways to answer the same images, in turns, so that a slow phase of the machine is everybody's.

    Args:
        works: by name.
        pixels: (B, C, H, W), as they take them.
        seconds: for each of them, at least; and three calls.
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
    """The seconds of one call, and of more of them until so much time has gone by."""
    found: list[float] = []
    while sum(found) < seconds:
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found
