"""What a run reports while it goes on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""An epoch's metrics."""
Note = Callable[[str], None]
"""Shows a line that one should know of."""


@dataclass
class Sums:
    """What an epoch has added up so far."""

    loss: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """Of each metric that the task counts, the units that it is true of."""
    units: int = 0
    seconds: float = 0.0
    unit: str = "images"
    """What the loss is a mean over."""

    def add(self, loss: float, counts: Mapping[str, int], units: int) -> None:
        """Take up a step, whose numbers are summed over its units."""
        self.loss += loss
        self.counts = {name: self.counts.get(name, 0) + count for name, count in counts.items()}
        self.units += units

    @property
    def means(self) -> dict[str, float]:
        """Per unit, and units per second."""
        units = max(1, self.units)
        counts = {name: count / units for name, count in self.counts.items()}
        return {"loss": self.loss / units, **counts, self.rate_name: self.rate}

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds if self.seconds else 0.0

    @property
    def rate_name(self) -> str:
        """What it is called: ``images_per_second``."""
        return f"{self.unit}_per_second"


class Observer:
    """Told how a run goes; this one keeps silent."""

    command_began: float | None = None
    """When the command began, by ``time.monotonic``: its time limit counts from then on. None for the call itself."""

    def start(self, epochs: int, steps: int, done: int) -> None:
        """The run has so many epochs and steps; ``done`` of the steps were made before."""

    def step(self, epoch: int, sums: Sums) -> None:
        """A step was made; ``sums`` are the epoch's so far."""

    def begin(self, what: str, images: int) -> None:
        """A pass over so many images begins, beside the training itself."""

    def advance(self, images: int) -> None:
        """So many more of them are done."""

    def kept(self, epoch: int) -> None:
        """The model of this epoch, counted from 1, is the best so far, and is kept; its metrics follow."""

    def epoch(self, row: Row) -> None:
        """An epoch ended with these metrics."""

    def note(self, text: str) -> None:
        """Something happened that one should know of."""
