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
    """Of each metric that the task counts, the images that it is true of."""
    images: int = 0
    seconds: float = 0.0

    def add(self, loss: float, counts: Mapping[str, int], images: int) -> None:
        """Take up a step, whose numbers are summed over its images."""
        self.loss += loss
        self.counts = {name: self.counts.get(name, 0) + count for name, count in counts.items()}
        self.images += images

    @property
    def means(self) -> dict[str, float]:
        """Per image, and images per second."""
        images = max(1, self.images)
        rate = self.images / self.seconds if self.seconds else 0.0
        counts = {name: count / images for name, count in self.counts.items()}
        return {"loss": self.loss / images, **counts, "images_per_second": rate}


class Observer:
    """Told how a run goes; this one keeps silent."""

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
