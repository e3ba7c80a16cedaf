"""Reports of a run while it trains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""An epoch's metrics."""
Note = Callable[[str], None]
"""Shows a line to the user."""


@dataclass
class Sums:
    """Running sums over the steps of an epoch."""

    loss: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """For each counted metric (such as ``accuracy``), the number of units that count as correct."""
    units: int = 0
    seconds: float = 0.0
    unit: str = "images"
    """Name of the units over which the loss is averaged."""

    def add(self, loss: float, counts: Mapping[str, int], units: int) -> None:
        """Add a step's loss and counts, each summed over the step's units."""
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
    """Receiver of a run's reports. This base class ignores them; a subclass overrides the methods that it needs."""

    command_began: float | None = None
    """Start of the command by ``time.monotonic``; a time limit counts from there. None counts from the call of `train`."""

    def start(self, epochs: int, steps: int, done: int) -> None:
        """Receive the run's total epochs and steps; ``done`` steps were made before this process."""

    def step(self, epoch: int, sums: Sums) -> None:
        """Receive the end of a step; ``sums`` are the running sums of the epoch."""

    def begin(self, what: str, images: int) -> None:
        """Receive the beginning of another pass over images, such as an evaluation; ``images`` is their number."""

    def advance(self, images: int) -> None:
        """Receive the number of images that the pass has completed since the last call."""

    def kept(self, epoch: int) -> None:
        """Receive the number of an epoch (from 1) whose model is the best so far; `epoch` follows with its metrics."""

    def epoch(self, row: Row) -> None:
        """Receive the metrics of an epoch."""

    def note(self, text: str) -> None:
        """Receive a line of text for the user."""
