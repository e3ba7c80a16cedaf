"""Reports of a run while it goes on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""An epoch's metrics."""
Note = Callable[[str], None]
"""Shows a line to the user."""


@dataclass
class Sums:
    """Sums over an epoch so far."""

    loss: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """Units for which each counted metric is true."""
    units: int = 0
    seconds: float = 0.0
    unit: str = "images"
    """Name of the units that the loss is a mean over."""

    def add(self, loss: float, counts: Mapping[str, int], units: int) -> None:
        """Add a step's numbers, summed over its units."""
        self.loss += loss
        self.counts = {name: self.counts.get(name, 0) + count for name, count in counts.items()}
        self.units += units

    @property
    def means(self) -> dict[str, float]:
        """Means per unit, and units per second."""
        units = max(1, self.units)
        counts = {name: count / units for name, count in self.counts.items()}
        return {"loss": self.loss / units, **counts, self.rate_name: self.rate}

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds if self.seconds else 0.0

    @property
    def rate_name(self) -> str:
        """Name of the rate: ``images_per_second``."""
        return f"{self.unit}_per_second"


class Observer:
    """Gets the reports of a run; this one does nothing with them."""

    command_began: float | None = None
    """Start of the command, by ``time.monotonic``, from which its time limit counts; None for the start of the call."""

    def start(self, epochs: int, steps: int, done: int) -> None:
        """Take the numbers of the run's epochs and steps; ``done`` of the steps were made before."""

    def step(self, epoch: int, sums: Sums) -> None:
        """Take a step; ``sums`` are the epoch's so far."""

    def begin(self, what: str, images: int) -> None:
        """Take the beginning of a pass over so many images, beside the training itself."""

    def advance(self, images: int) -> None:
        """Count so many more of them as done."""

    def kept(self, epoch: int) -> None:
        """Take the number of an epoch, counted from 1, whose model is the best so far; its metrics follow."""

    def epoch(self, row: Row) -> None:
        """Take the metrics of an epoch."""

    def note(self, text: str) -> None:
        """Take a line for the user."""
