"""Diffusion: a model learns to take noise out of images (Ho et al. 2020, https://arxiv.org/abs/2006.11239)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation
from vitrail.data.images.plan import Plan
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.sampler import spread
from vitrail.data.targets import Arrays, Targets
from vitrail.errors import ConfigError
from vitrail.tasks.diffusion.latents.moments import LatentDataset, Latents
from vitrail.tasks.diffusion.latents.vae_folder import vae_of_run
from vitrail.tasks.diffusion.masks import draw_mask
from vitrail.tasks.diffusion.process import Process, variational_bound
from vitrail.tasks.diffusion.quality.epoch_samples import EpochSamples, make_samples
from vitrail.tasks.diffusion.quality.loss_by_time import LossByTime
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.task import Answers, Means, Metrics, Options

SOME = 64
"""Images that the floor is measured on."""


class Diffusion(ImageTask):
    """A model that gives the noise in a noisy image, and what it learns.

    Args:
        model: takes noisy images, times and classes.
        preparation: normalizes the pixels to about [-1, 1].
        classes: their names, by index; none of a model without classes.
        settings: weights of times, and the fraction of images that are learned without their class.
    """

    name = "diffusion"
    computes = ("answer", "samples")

    def __init__(self, model: Any, preparation: Preparation, classes: list[str], settings: DiffusionSettings):
        super().__init__(model, preparation)
        self.settings, self.classes = settings, classes
        self.config = model.config
        self.process = Process.of(self.config)
        self.latents = None if settings.latents is None else Latents(vae_of_run(settings.latents))

    @classmethod
    def create(cls, model: Any, preparation: Preparation, data: ImageData, options: Options) -> Self:
        assert isinstance(options.task, DiffusionSettings)
        others = {"--balance": options.balance != "none", "--tune": options.tune != "all"}
        refuse_given("it does not go with diffusion", {"--teacher": options.teacher is not None, **others})
        return cls(model, preparation, data.classes, options.task)

    def targets(self, *, mixed: bool = False) -> Targets:
        if mixed:
            raise ConfigError(
                "a mixture of two images is no image to learn", where="augmentation", hint="leave mixup and cutmix out"
            )
        c = self.config
        dropped = self.settings.label_dropout if c.null_class else 0.0
        masked = c if hasattr(c, "mask_ratio") else None
        return Noisy((c.channels, *c.image_size), c.num_classes, dropped=dropped, drawn=self.latents is not None, masked=masked)

    def dataset(
        self,
        items: Sequence[Item],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> ImageDataset:
        if self.latents is None:
            return super().dataset(items, augmentation, seed=seed, transform=transform)
        refuse_given("images are encoded once, before anything could change them", {"transform": transform is not None})
        dataset = LatentDataset(items, self.preparation, augmentation, seed, targets=self.targets())
        dataset.latents = self.latents
        return dataset

    def images(self, batch: Batch) -> Tensor:
        """Return images, normalized, or where latents are learned theirs, drawn anew: (B, C, H, W)."""
        if self.latents is None:
            return super().images(batch)
        return self.latents.images(batch["images"], batch["posterior"], self.preparation)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss; in training a model that learns with masks passes twice, and the losses of both passes are added."""
        dropped = batch["dropped"] if self.training else torch.zeros_like(batch["dropped"])
        passes = (None, batch["masked"]) if self.training and "masked" in batch else ()
        return {"loss": self.losses(batch, dropped, *passes).mean()}

    def answer(self, batch: Batch) -> Answers:
        """Return the loss of each image at its own time, (B,)."""
        return {"loss": self.losses(batch, torch.zeros_like(batch["dropped"]))}

    def metrics(self, *, keep: bool = False) -> Means:
        if keep:
            return LossByTime()
        return EpochSamples(self.trained(self.model), compared=self.settings.best == "kernel", make=self.samples)

    def samples(self, count: int) -> list[Image.Image]:
        """Make samples with the model as it is; every process calls it."""
        return make_samples(self.trained(self.model), count)

    @torch.no_grad()
    def floor(self, metrics: Metrics, items: Sequence[Item], known: Sequence[Item]) -> Floor | None:
        """Return the loss of zeros for every image, which a fresh model gives, on some of the ``items``."""
        some = [items[place] for place in spread(len(items), SOME)]
        batch = self.dataset(some).batch([(0, number) for number in range(len(some))])
        return Floor("zeros for every image", {"loss": self.losses(batch, None).mean().item()})

    def output(self, x: Tensor, times: Tensor, batch: Batch, dropped: Tensor, masked: Tensor | None = None) -> Tensor:
        """Return the model's output for noisy images; classes of those that are ``dropped`` (B,) become the null class."""
        more = {} if masked is None else {"masked": masked}
        if self.config.num_classes:
            more["labels"] = torch.where(dropped, self.config.num_classes, batch["labels"])
        output: Tensor = self.model(x, self.process.model_times(times), **more).float()
        return output

    def losses(self, batch: Batch, dropped: Tensor | None, *masks: Tensor | None) -> Tensor:
        """Return the loss of each image, (B,): the squared error, weighed, and with a learned variance the variational bound.

        ``dropped`` is as in `output`; None stands for a model that gives zeros. The model passes once for each of the ``masks``,
        (B, N), or None for all patches, which is the default. The losses of all passes, of the same noisy images, are added.
        """
        images, noise = self.images(batch), batch["noise"]
        times = batch["times"] if self.process.continuous else (batch["times"] * self.config.steps).floor()
        x = self.process.noisy(images, noise, times)
        target, weights = self.process.target(images, noise, times), self.process.weights(times, self.settings.min_snr)

        def loss(masked: Tensor | None) -> Tensor:
            output = torch.zeros_like(x) if dropped is None else self.output(x, times, batch, dropped, masked)
            mean, variance = output[:, : self.config.channels], output[:, self.config.channels :]
            errors = (mean - target).square().mean(dim=(1, 2, 3)) * weights
            if not self.config.learned_variance or dropped is None:
                return errors
            return errors + variational_bound(self.process, images, x, mean.detach(), variance, times)

        first, *others = map(loss, masks or (None,))
        return sum(others, start=first)

    def trained(self, model: Any) -> TrainedDiffusion:
        trained = TrainedDiffusion(model, self.classes, self.preparation)
        trained.latents = self.settings.latents
        return trained

    def allow_any_size(self) -> None:
        hint = "leave first_image_size and last_image_size out"
        raise ConfigError("diffusion takes images of one size", where="schedule", hint=hint)


@dataclass(frozen=True)
class Noisy:
    """The random numbers of a noisy image, and its class.

    ``noise``, float32 (C, H, W); ``times``, float32 () from 0 to 1; ``dropped``, bool (), true where the class is not learned;
    ``labels``, int64 (), where there are classes; ``posterior``, float32 (C, H, W), by which latents are ``drawn``;
    ``masked``, bool (N,), where the model learns with masks.
    """

    shape: tuple[int, ...]
    classes: int
    dropped: float
    drawn: bool = False
    masked: Any = None
    """Configuration of a model that learns with masks; None for another."""
    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        arrays = {
            "noise": random.standard_normal(self.shape, dtype=np.float32),
            "times": np.array(random.random(), np.float32),
            "dropped": np.array(random.random() < self.dropped),
        }
        if self.classes:
            arrays["labels"] = np.array(item.target, np.int64)
        if self.drawn:
            arrays["posterior"] = random.standard_normal(self.shape, dtype=np.float32)
        if self.masked is not None:
            arrays["masked"] = draw_mask(self.masked, random)
        return arrays


create = Diffusion.create
