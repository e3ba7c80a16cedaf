"""Real images that samples are compared with: those of the run, or others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from vitrail.config.run_files import BAD_IMAGES
from vitrail.data.items import ImageData, Item
from vitrail.errors import DataError
from vitrail.runtime.observer import Note
from vitrail.task_registry import Labels
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.tasks.evaluation import Request
from vitrail.training.images import open_images
from vitrail.training.run_data import run_data_of
from vitrail.training.runs.data_of_model import own_run
from vitrail.training.runs.run_folder import RunFolder


@dataclass(frozen=True)
class RealImages:
    """The data to compare with, the images that a run has learned from, and its real images that it has not."""

    source: ImageData
    learned: Sequence[Item]
    """Empty where the data of the run cannot be read any more."""
    held_out: Sequence[Item]

    @classmethod
    def open(cls, request: Request, run: RunFolder, trained: TrainedDiffusion) -> Self:
        """Open the data of a request; raises `DataError` where its classes are not the model's."""
        _, is_own = own_run(request.reference, request.data)
        own = _own_images(run, request.note, required=is_own)
        labels: Labels = "optional" if trained.labels else "none"
        source = own if is_own and own is not None else open_images(labels, request.data or run.settings.data.source)
        if trained.labels and source.classes != trained.labels:
            hint = "evaluate on data of the run's classes"
            raise DataError(f"the data has the classes {', '.join(source.classes) or 'none'}", where=source.source, hint=hint)
        if own is None:
            return cls(source, [], [])
        return cls(source, own.split("train"), [*own.splits["val"], *own.splits["test"]])

    @property
    def count(self) -> int:
        """Number of images to compare with."""
        return len(self.source.split("all"))

    def two_sets(self, count: int) -> tuple[list[Item], list[Item]]:
        """Return ``count`` images to compare with, and as many others.

        The first are training images as far as they suffice.
        """
        random, ordered = np.random.default_rng(0), list[Item]()
        for split in ("train", "val", "test"):
            items = self.source.splits[split]
            ordered += [items[number] for number in random.permutation(len(items))]
        first, more = ordered[:count], ordered[count:]
        return first, [more[number] for number in random.permutation(len(more))[:count]]


def _own_images(run: RunFolder, note: Note, *, required: bool) -> ImageData | None:
    """Return the data of a run as it has learned from it; None where it cannot be read any more, unless it is ``required``."""
    kind, settings, bad = run_data_of(run.settings), run.settings, run.bad_images
    try:
        source: ImageData = kind.used(kind.open_source(settings, run=run), bad, settings)
    except DataError as error:
        if required:
            raise
        note(f"copies are not searched for, since the data of the run cannot be read: {error.what}")
        return None
    if bad:
        note(f"images that the run could not read and leaves out: {len(bad):,}; {BAD_IMAGES} lists them")
    return source
