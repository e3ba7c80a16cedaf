"""Distillation of features: a student gives the vectors and maps of a teacher, without labels."""

from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.checks import refuse_given
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData
from vitrail.data.loading.batches import Batch
from vitrail.data.targets import Nothing, Targets
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.models.inference import evaluation_mode
from vitrail.tasks.distill.settings import DistillSettings
from vitrail.tasks.distill.teacher import FeatureTeacher
from vitrail.tasks.features.feature_task import FeatureTask, classes_of
from vitrail.tasks.settings import ScheduleSettings
from vitrail.tasks.task import Answers, Options
from vitrail.tasks.teachers import WithAnswers
from vitrail.weights.reference import open_model

LEAST_VARIED = 0.1
"""Least deviation of a feature, as a fraction of the mean over all features."""


class Standard(nn.Module):
    """Mean and deviation of each of a teacher's features, by which they are standardized.

    Without this, all images would have nearly the same target, since most of a vector is common to all.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("deviation", torch.ones(dim))

    def fit(self, sums: Tensor) -> None:
        """Take mean and deviation from the `moments` of features, (3, D).

        A feature that hardly varies in them gets a tenth of the mean deviation: else another value of it in another image would
        outweigh all other features.
        """
        count, total, squares = sums
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
        self.mean.copy_(mean)
        self.deviation.copy_(deviation.clamp(min=max(LEAST_VARIED * deviation.mean().item(), 1e-6)))

    def forward(self, features: Tensor) -> Tensor:
        """Standardize features (…, D)."""
        return (features - self.mean) / self.deviation


def moments(features: Tensor) -> Tensor:
    """Return number, sum and sum of squares of features (N, D), float64 (3, D)."""
    x = features.double()
    return torch.stack([torch.ones_like(x), x, x.square()]).sum(dim=1)


class Distill(FeatureTask):
    """A student learns to predict a teacher's vectors and maps with a linear layer. Predicting the mean vector has the loss 1.

    Args:
        model: the student, a model without classes.
        preparation: normalizes the pixels.
        settings: weights of the losses.
        teacher: gives the targets; None for a task that only evaluates, without a loss. With ``once``, its vectors are in
            ``answers``, by the names of the images.
        classes: the number of classes of labelled images, which measure the features; 0 for none.
        once: whether the teacher's vectors are computed once for all images as they are.
    """

    name = "distill"
    carried: tuple[str, ...] = ("standards",)

    def __init__(
        self,
        model: ImageModel,
        preparation: Preparation,
        settings: DistillSettings,
        teacher: FeatureTeacher | None,
        *,
        classes: int = 0,
        once: bool = False,
    ):
        super().__init__(model, preparation, classes)
        self.settings, self.teacher, self.once = settings, teacher, once
        self.answers: dict[str, np.ndarray] = {}
        if teacher is None:
            self.carried = ()
            return
        self.projections, self.standards = nn.ModuleDict(), nn.ModuleDict()
        pixels = torch.zeros(1, preparation.channels, *preparation.image_size, dtype=torch.uint8)
        with evaluation_mode(model), torch.no_grad():
            own = model.vectors_and_map(preparation.normalize(pixels))
        for name, here, there in zip(("vectors", "maps"), own, teacher(pixels, maps=bool(settings.maps)), strict=True):
            if getattr(settings, name) and there is not None:
                self.projections[name] = nn.Linear(here.shape[1], there.shape[1])
                self.standards[name] = Standard(there.shape[1])

    @classmethod
    def create(cls, model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Self:
        settings = options.task
        assert isinstance(settings, DistillSettings)
        others = {"--balance": options.balance != "none", "--tune": options.tune == "head"}
        refuse_given("features have no classes and no head", others)
        dropped = bool(settings.maps) and bool(getattr(model.config, "patch_dropout", 0.0))
        refuse_given("maps need all patches", {"model.patch_dropout": dropped})
        reference = options.distillation.teacher
        given = options.teacher or (open_model(reference) if reference else None)
        teacher = None if given is None else FeatureTeacher(given)
        return cls(model, preparation, settings, teacher, classes=classes_of(data), once=options.distillation.once)

    def learned_targets(self, *, mixed: bool) -> Targets:
        return WithAnswers(Nothing(), self.answers) if self.once else Mixable()

    def follow_schedule(self, schedule: ScheduleSettings) -> None:
        if schedule.shrinks_images and self.settings.maps:
            hint = "leave it out, or add --task.maps 0"
            raise ConfigError(
                "maps are learned at the model's size", where="schedule.first_image_size, last_image_size", hint=hint
            )
        super().follow_schedule(schedule)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self._losses(batch)[1].mean()}

    def answer(self, batch: Batch) -> Answers:
        """Return ``features`` (B, D), the vectors of images, and with a teacher the ``loss`` of each (B,)."""
        if self.teacher is None:
            return {"features": self.network(self.images(batch)).float()}
        vectors, loss = self._losses(batch)
        return {"features": vectors.float(), "loss": loss}

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the vectors (B, D), and the loss of each image (B,): mean squared errors of standardized features."""
        weights, pixels = self.settings, batch["images"]
        assert self.teacher is not None
        if "teacher" in batch:
            taught, taught_map = batch["teacher"], None
        else:
            taught, taught_map = self.teacher(pixels, maps=bool(weights.maps))
        images = self.images(batch)
        if not weights.maps:
            vectors, loss = self.network(images), torch.zeros(len(pixels), device=pixels.device)
        else:
            assert taught_map is not None
            vectors, found = self.model.vectors_and_map(images)
            wanted = F.interpolate(taught_map, found.shape[-2:], mode="bilinear", antialias=True).permute(0, 2, 3, 1)
            errors = self.projections["maps"](found.permute(0, 2, 3, 1)).float() - self.standards["maps"](wanted)
            loss = weights.maps * errors.square().mean(dim=(1, 2, 3))
        if weights.vectors:
            errors = self.projections["vectors"](vectors).float() - self.standards["vectors"](taught)
            loss = loss + weights.vectors * errors.square().mean(dim=1)
        return vectors, loss


class Mixable(Nothing):
    """No target arrays, so that images can be mixed: the teacher sees the mixture, too."""

    mixable = True


create = Distill.create
