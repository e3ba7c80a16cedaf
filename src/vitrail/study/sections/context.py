"""Shared data of a study's sections: the model and images, and the resulting numbers, maps and figures."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vitrail.files import write_json, write_text
from vitrail.models.cost import cost
from vitrail.models.structure import changed_parts
from vitrail.runtime.observer import Observer
from vitrail.study.maps.captures import hides, require_capturable, sight_of
from vitrail.study.maps.stages import most_weights
from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup
from vitrail.study.sections.study_images import Subjects
from vitrail.weights.model_folder.folder import TrainedModel

WORK = 2**29
"""Bytes that a pass may store for all its layers."""
KEPT = 96
"""Bytes per token, channel and layer that a pass with gradients stores: about 24 float32 values."""
PER_PAIR = 16
"""Bytes per head and pair of tokens for a layer's attention weights and their gradients, with a copy of each."""


class Predicted(Protocol):
    """Predictions for the images of a study, in their order."""

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by index."""

    @property
    def probabilities(self) -> np.ndarray:
        """Probabilities, (N, classes)."""

    @property
    def multi_label(self) -> bool:
        """True if an image may have several classes, or none."""

    def caption(self, image: int, index: int) -> str:
        """Return a class and its probability, short enough for a caption."""


class StudyContext:
    """The model and the images of a study; sections write figures to ``folder`` and fill ``numbers`` and ``maps``."""

    def __init__(
        self,
        folder: Path,
        trained: TrainedModel,
        subjects: Subjects,
        predictions: Predicted | None,
        observer: Observer,
    ):
        self.folder, self.subjects, self.predictions = folder, subjects, predictions
        self.begin, self.advance = observer.begin, observer.advance
        self.model, self.preparation = trained.model, trained.preparation
        self.device = next(self.model.parameters()).device
        require_capturable(self.model)  # before any image is read
        self.changed = changed_parts(self.model)
        """Parts that the user changed, with a sentence about each; the configuration then does not give the model's cost."""
        self.hidden = hides(self.model)
        self.sight = None if self.hidden else sight_of(self.model)
        self.counted, self.attends = cost(self.model.config), self.sight == "image"
        self.batch = _batch(self._bytes())
        self.pixels = self.read(subjects.items, "reading images")
        self.maps: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {"images": len(subjects.items)}

    def _bytes(self) -> int:
        """Return the bytes per image of a pass: with gradients if there are relevance maps, else of the largest attention."""
        c: Any = self.model.config
        if self.attends:
            tokens = c.prefix + c.grid[0] * c.grid[1]
            return int(KEPT * tokens * c.dim * c.depth + PER_PAIR * c.heads * tokens**2)
        if not self.sight:
            return 1
        return PER_PAIR * most_weights(self.model, torch.zeros(1, c.channels, *c.image_size, device=self.device))

    def pixels_of(self, item: Any) -> np.ndarray:
        """Return the prepared pixels of an item, uint8 (C, H, W)."""
        return self.preparation.pixels(item.image)

    def read(self, items: list[Any], what: str) -> Tensor:
        """Return the prepared pixels of all items, uint8 (N, C, H, W)."""
        self.begin(what, len(items))
        found = []
        for item in items:
            found.append(torch.from_numpy(self.pixels_of(item)))
            self.advance(1)
        return torch.stack(found)

    def batches(self, pixels: Tensor, what: str) -> Iterator[Tensor]:
        """Yield normalised images on the model's device."""
        self.begin(what, len(pixels))
        for part in pixels.split(self.batch):
            yield self.preparation.normalize(part.to(self.device))
            self.advance(len(part))

    def batches_of(self, items: list[Any], what: str) -> Iterator[Tensor]:
        """Yield normalised images of items, read batch by batch, since they may not fit into memory."""
        self.begin(what, len(items))
        for start in range(0, len(items), self.batch):
            part = items[start : start + self.batch]
            pixels = torch.from_numpy(np.stack([self.pixels_of(item) for item in part]))
            yield self.preparation.normalize(pixels.to(self.device))
            self.advance(len(part))

    def picture(self, figure: Any, name: str, title: str, caption: str) -> Markup:
        """Save a figure as NAME.png, and return it as HTML."""
        file = self.folder / f"{name}.png"
        figures.save(figure, file)
        return page.picture(file, title, caption)

    def written(self, title: str, sections: Iterable[Markup]) -> dict[str, Any]:
        """Write ``maps.npz``, ``study.json`` and ``report.html``, and return the content of ``study.json``."""
        write_text(self.folder / "report.html", page.page(title, list(sections)))
        maps: dict[str, Any] = {name: found.numpy() for name, found in self.maps.items()}
        with (self.folder / "maps.npz").open("wb") as file:
            np.savez_compressed(file, images=np.array([item.name for item in self.subjects.items]), **maps)
        write_json(self.folder / "study.json", self.numbers)
        return self.numbers


def _batch(size: int) -> int:
    """Return how many images of ``size`` bytes fit into a pass."""
    return max(1, min(32, WORK // size))
