"""A few samples at the end of an epoch: a picture of what the model has learned, and what epochs may be compared by."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
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
        make: makes a number of samples; by default `make_samples` of the model.
    """

    def __init__(self, trained: TrainedDiffusion, *, compared: bool, make: Callable[[int], list[Image.Image]] | None = None):
        super().__init__(lambda answers, batch: {"loss": answers["loss"].cpu()})
        self.trained, self.compared = trained, compared
        self.make = make or partial(make_samples, trained)
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
        return self.make(COMPARED if self.compared else SHOWN)

    @cached_property
    def distance(self) -> float:
        """The kernel distance of the samples from validation images, by their pixels, standardized as those of the latter."""
        preparation: Preparation = self.trained.preparation
        real = pixel_vectors([self.items[place].image for place in spread(len(self.items), REAL)], preparation)
        made = pixel_vectors(self.samples, preparation)
        return self.group.broadcast(kernel_distance(standardized(real, real), standardized(made, real)))

    def picture(self) -> bytes:
        """Return some of the samples side by side, as PNG."""
        file = BytesIO()
        shown = [self.samples[place] for place in spread(len(self.samples), SHOWN)]
        tiled(shown, SHOWN).save(file, "PNG")
        return file.getvalue()


def make_samples(trained: TrainedDiffusion, count: int) -> list[Image.Image]:
    """Make samples of the first seeds, spread over the classes, with the model as it is."""
    labels = class_indices(trained, None, count)
    with evaluation_mode(trained.model):
        return list(sample_pictures(trained, range(count), labels, SAMPLING))
