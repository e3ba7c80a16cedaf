"""Self-distillation without labels (DINO, Caron et al. 2021, https://arxiv.org/abs/2104.14294)."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset, NumberedDataset
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.runtime.processes import Processes
from vitrail.tasks.dino.head import Centre, ProjectionHead
from vitrail.tasks.dino.loss import distillation_loss, koleo_loss, teacher_probabilities
from vitrail.tasks.dino.settings import DinoSettings
from vitrail.tasks.dino.views import CropsDataset, SmallCrops
from vitrail.tasks.feature_task import FeatureTask, classes_of
from vitrail.tasks.task import Answers, Options, Progress, Task

WARMING = 0.3
"""Fraction of the steps in which the teacher's temperature grows."""


class Dino(FeatureTask):
    """A student predicts of crops of an image what its own moving average, the teacher, says of other crops.

    The teacher is the moving average of the run; it is what is evaluated and saved.

    Args:
        model: the backbone, a model without classes.
        preparation: normalizes the pixels.
        settings: crops, projection, temperatures.
        outputs: the number of outputs of the projection.
        classes: the number of classes of labelled images, which measure the features; 0 for none.
    """

    name = "dino"
    carried = ("centre",)
    computes = ("answer", "project")

    def __init__(self, model: ImageModel, preparation: Preparation, settings: DinoSettings, *, outputs: int, classes: int = 0):
        super().__init__(model, preparation, classes)
        self.settings = settings
        self.head = ProjectionHead(model.vector_dim, settings.hidden_dim, settings.bottleneck_dim, outputs)
        self.centre = Centre(outputs)
        self.temperature = settings.teacher_temperature
        self._teacher: tuple[Dino, ...] = ()  # in a tuple, so that it is no part of this module
        self._taught: list[Tensor] = []
        """The teacher's outputs in this step, summed over images, (K + 1,) each; the last number counts them."""
        if settings.small_crops:
            self.allow_any_size()

    @classmethod
    def create(cls, model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Self:
        settings = options.task
        assert isinstance(settings, DinoSettings)
        others = {"--balance": options.balance != "none", "--tune": options.tune == "head"}
        given = {"--teacher": options.teacher is not None, **others}
        refuse_given("self-distillation has no classes, no other teacher and no head", given)
        outputs = settings.outputs_for(len(data.splits["train"]))
        return cls(model, preparation, settings, outputs=outputs, classes=classes_of(data))

    def dataset(
        self,
        items: Sequence[Item],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> ImageDataset:
        if transform is not None:
            raise ConfigError("crops are made here, without a custom transform", where="transform", hint="leave transform out")
        if augmentation is None:
            return NumberedDataset(items, self.preparation, targets=self.targets())
        self.settings.require_crops(augmentation)
        return CropsDataset(items, self.preparation, augmentation, seed, small=self._small_crops())

    def _small_crops(self) -> SmallCrops:
        c: Any = self.model.config
        sides = zip(c.image_size, c.size_multiple, strict=True)
        height, width = (step * math.ceil(self.settings.small_size * side / step - 1e-6) for side, step in sides)
        return SmallCrops(self.settings.small_crops, (height, width), self.settings.small_area)

    def decay(self, progress: Progress) -> float:
        """Return the decay of the teacher: half a cosine from the first one to 1."""
        left = (1 + math.cos(math.pi * min(1.0, progress.done / max(1, progress.total)))) / 2
        return 1 - (1 - self.settings.teacher_decay) * left

    def learn_from(self, average: Task) -> None:
        assert isinstance(average, Dino)
        self._teacher = (average.eval(),)

    def before_step(self, progress: Progress) -> None:
        """Set the teacher's temperature, and freeze the last layer in the first epoch."""
        super().before_step(progress)
        first, last = self.settings.teacher_temperature, self.settings.last_teacher_temperature
        self.temperature = first + (last - first) * min(1.0, progress.done / max(1.0, WARMING * progress.total))
        self.head.frozen = progress.done < self.settings.frozen_epochs * progress.epoch
        self._taught = []

    def after_step(self, progress: Progress, group: Processes) -> None:
        """Move the centre to the mean of the teacher's outputs for the whole batch."""
        super().after_step(progress, group)
        sums = group.all_reduce(torch.stack(self._taught).sum(dim=0).double())
        if self.settings.centring:
            self.centre.mean.lerp_((sums[:-1] / sums[-1]).to(self.centre.mean), 1 - self.settings.centre_decay)

    def project(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors (B, D) and the outputs of the projection (B, K) of normalized images (B, C, H, W)."""
        vectors = self.network(images)
        return vectors, self.head(vectors)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        vectors, student, teacher = self._both(batch)
        self._taught.append(torch.cat([teacher.sum(dim=(0, 1)), teacher.new_tensor([2 * len(teacher)])]))
        taught = teacher_probabilities(teacher, self.centre.mean, self.temperature)
        loss = distillation_loss(student, taught, self.settings.student_temperature).mean()
        if self.settings.koleo and len(vectors) > 1:
            loss = loss + self.settings.koleo * torch.stack([koleo_loss(view) for view in vectors.unbind(1)]).mean()
        return {"loss": loss}

    def answer(self, batch: Batch) -> Answers:
        """Return ``features`` (B, D), the vectors of images; ``outputs`` (B, K), probabilities; and the ``loss`` (B,).

        The loss is that of two views, the image and its mirror image.
        """
        vectors, student, teacher = self._both(batch)
        taught = teacher_probabilities(teacher, self.centre.mean, self.settings.last_teacher_temperature)
        loss = distillation_loss(student, taught, self.settings.student_temperature)
        return {"features": vectors[:, 0].float(), "outputs": taught[:, 0], "loss": loss}

    def _both(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the student's vectors of large crops (B, 2, D), its outputs (B, V, K), and the teacher's (B, 2, K), in float32.

        Crops of one size are one batch. Images without crops, (B, C, H, W), are taken with their mirror images as large crops.
        Without an average the model is its own teacher.
        """
        images, count = batch["images"], len(batch["images"])
        large = images if images.ndim == 5 else torch.stack([images, images.flip(-1)], dim=1)
        crops = [large, *([batch["small"]] if "small" in batch else [])]
        pixels = [self.preparation.normalize(part.flatten(0, 1)) for part in crops]
        teacher = self._teacher[0] if self._teacher else self
        with torch.no_grad():
            taught = teacher.project(pixels[0])[1].float()
        found = [self.project(part) for part in pixels]
        vectors, student = ([part[i].unflatten(0, (count, -1)) for part in found] for i in (0, 1))
        return vectors[0], torch.cat(student, dim=1), taught.unflatten(0, (count, -1))


create = Dino.create
