"""A few samples at the end of an epoch: a picture of what the model has learned, and what epochs may be compared by."""

from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from typing import Any

from PIL import Image

from vitrail.data.images.preparation import Preparation
from vitrail.data.loading.sampler import spread
from vitrail.models.inference import evaluation_mode
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.diffusion.quality.distances import kernel_distance, pixel_vectors, standardized
from vitrail.tasks.diffusion.sampling.making import class_indices, sample_pictures
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.preview import tiled
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.tasks.task import Means

SHOWN, COMPARED = 10, 64
"""Samples in a picture, and samples that are compared with real images."""
REAL = 256
"""Validation images that they are compared with, at most."""
SAMPLING = Sampling(steps=10, sampler="dpm++")


class EpochSamples(Means):
    """The mean loss, and samples of the model as it is now, always of the same seeds.

    Args:
        trained: the model, which must not change before the samples are made.
        compared: whether the distance of samples from real images is a metric.
    """

    def __init__(self, trained: TrainedDiffusion, *, compared: bool):
        super().__init__(lambda answers, batch: {"loss": answers["loss"].cpu()})
        self.trained, self.compared = trained, compared
        self.items: Sequence[Any] = ()
        self.group: Processes = ALONE

    def take_items(self, items: Sequence[Any]) -> None:
        self.items = items

    def reduce(self, group: Processes) -> None:
        super().reduce(group)
        self.group = group

    def scores(self) -> dict[str, float | int]:
        if self.compared and len(self.items) > 1:  # one image has no distance to others
            return {**super().scores(), "sample_distance": self.distance}
        return super().scores()

    @cached_property
    def samples(self) -> list[Image.Image]:
        """The samples, which every process makes."""
        count = COMPARED if self.compared else SHOWN
        labels = class_indices(self.trained, None, count)
        with evaluation_mode(self.trained.model):
            return list(sample_pictures(self.trained, range(count), labels, SAMPLING))

    @cached_property
    def distance(self) -> float:
        """The kernel distance of the samples from validation images, by their pixels, standardized as those of the latter."""
        preparation: Preparation = self.trained.preparation
        real = pixel_vectors([preparation.pixels(self.items[place].image) for place in spread(len(self.items), REAL)])
        made = pixel_vectors([preparation.pixels(picture) for picture in self.samples])
        return self.group.broadcast(kernel_distance(standardized(real, real), standardized(made, real)))

    def picture(self) -> bytes:
        """Return some of the samples side by side, as PNG."""
        file = BytesIO()
        shown = [self.samples[place] for place in spread(len(self.samples), SHOWN)]
        tiled(shown, SHOWN).save(file, "PNG")
        return file.getvalue()
