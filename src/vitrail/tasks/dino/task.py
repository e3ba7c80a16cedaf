"""Self-distillation without labels (DINO, Caron et al. 2021, https://arxiv.org/abs/2104.14294)."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.parts.normalization import batch_norms
from vitrail.runtime.processes import Processes
from vitrail.tasks.dino.head import Centre, MaskToken, ProjectionHead
from vitrail.tasks.dino.loss import distillation_loss, koleo_loss, patch_loss, teacher_probabilities
from vitrail.tasks.dino.settings import DinoSettings
from vitrail.tasks.dino.views import LARGE, CropsDataset, SmallCrops
from vitrail.tasks.features.feature_task import FeatureTask, classes_of
from vitrail.tasks.features.masking import require_maskable
from vitrail.tasks.settings import ScheduleSettings
from vitrail.tasks.task import Answers, Options, Progress, Task
from vitrail.training.loop.schedule import half_cosine

WARMING = 0.3
"""Fraction of the steps in which the teacher's temperature grows."""


class Projected(NamedTuple):
    """Vectors of images (B, D), their outputs of the projection (B, K), and the outputs of some patches (M, K) or None."""

    vectors: Tensor
    outputs: Tensor
    patches: Tensor | None


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
    carried: tuple[str, ...] = ("centre",)
    computes = ("answer", "project")

    def __init__(self, model: ImageModel, preparation: Preparation, settings: DinoSettings, *, outputs: int, classes: int = 0):
        super().__init__(model, preparation, classes)
        self.settings = settings
        widths = settings.hidden_dim, settings.bottleneck_dim, outputs
        self.head = ProjectionHead(model.vector_dim, *widths, batch_norm=settings.batch_norm)
        self.centre = Centre(outputs)
        if settings.patches:
            config = require_maskable(model, "the loss on masked patches")
            self.carried = ("centre", "patch_centre")
            self.mask, self.patch_centre = MaskToken(config.dim), Centre(outputs)
        self.temperature = settings.teacher_temperature
        self.frozen = False
        """True in steps that do not change the last layer of the projection."""
        self._teacher: tuple[Dino, ...] = ()  # in a tuple, so that it is no part of this module
        if settings.small_crops:
            self._take_small_crops()

    def _take_small_crops(self) -> None:
        """Prepare the model for smaller images; raises `ConfigError` for a model that takes only one size."""
        try:
            self.allow_any_size()
        except ConfigError as error:
            raise ConfigError(error.what, where="task.small_crops", hint="add --task.small-crops 0") from None

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
            return super().dataset(items)
        self.settings.require_crops(augmentation)
        c: Any = self.model.config
        grid = c.grid if self.settings.patches else None
        return CropsDataset(items, self.preparation, augmentation, seed, small=self._small_crops(), grid=grid)

    def _small_crops(self) -> SmallCrops:
        c: Any = self.model.config
        sides = zip(c.image_size, c.size_multiple, strict=True)
        height, width = (step * math.ceil(self.settings.small_size * side / step - 1e-6) for side, step in sides)
        return SmallCrops(self.settings.small_crops, (height, width), self.settings.small_area)

    def follow_schedule(self, schedule: ScheduleSettings) -> None:
        if schedule.shrinks_images:
            hint = "leave it out; small crops save time already"
            raise ConfigError("crops have the model's size", where="schedule.first_image_size, last_image_size", hint=hint)
        super().follow_schedule(schedule)

    def decay(self, progress: Progress) -> float:
        """Return the decay of the teacher: half a cosine from the first one to 1."""
        return 1 - (1 - self.settings.teacher_decay) * half_cosine(progress.done / max(1, progress.total))

    def learn_from(self, average: Task) -> None:
        assert isinstance(average, Dino)
        self._teacher = (average.eval(),)
        for norm in batch_norms(average):
            norm.train()  # it sees the teacher's batch; evaluation sets its own mode, and restores this one

    def before_step(self, progress: Progress) -> None:
        """Set the teacher's temperature, and freeze the last layer in the first epoch."""
        super().before_step(progress)
        first, last = self.settings.teacher_temperature, self.settings.last_teacher_temperature
        self.temperature = first + (last - first) * min(1.0, progress.done / max(1.0, WARMING * progress.total))
        self.frozen = progress.done < self.settings.frozen_epochs * progress.epoch
        for centre in self._centres():
            centre.begin_step()

    def paused_parameters(self) -> Iterable[nn.Parameter]:
        """Return the last layer of the projection in the first epochs."""
        return self.head.last.parameters() if self.frozen else ()

    def after_step(self, progress: Progress, group: Processes) -> None:
        """Move the centres to the means of the teacher's outputs for the whole batch."""
        super().after_step(progress, group)
        for centre in self._centres():
            centre.end_step(self.settings.centre_decay, group)

    def _centres(self) -> list[Centre]:
        """Return the centres that move."""
        return [getattr(self, name) for name in self.carried] if self.settings.centring else []

    def project(self, images: Tensor, masked: Tensor | None = None, *, hidden: bool = False) -> Projected:
        """Project normalized images (B, C, H, W), and the patches in a mask, bool (B, N); ``hidden`` ones are not seen."""
        if masked is None:
            vectors = self.network(images)
            return Projected(vectors, self.head(vectors), None)
        model: Any = self.model
        z = model.encode(images, masked=(masked, self.mask.token) if hidden else None)
        vectors, patches = model.pooled(z), z[:, model.config.prefix :][masked]
        return Projected(vectors, self.head(vectors), self.head(patches))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        settings, masked = self.settings, self._masked(batch) if self.settings.patches else None
        student, teacher, outputs = self._both(batch, masked)
        taught = self._taught(teacher.outputs, self.centre)
        loss = distillation_loss(outputs, taught.unflatten(0, (-1, LARGE)), settings.student_temperature).mean()
        if settings.koleo and len(outputs) > 1:
            views = student.vectors.unflatten(0, (len(outputs), LARGE)).unbind(1)
            loss = loss + settings.koleo * torch.stack([koleo_loss(view) for view in views]).sum()
        if masked is not None and student.patches is not None and teacher.patches is not None:
            taught_patches = self._taught(teacher.patches, self.patch_centre)
            loss = loss + settings.patches * patch_loss(student.patches, taught_patches, masked, settings.student_temperature)
        return {"loss": loss}

    def _masked(self, batch: Batch) -> Tensor:
        """Return the masks of the large crops, bool (2 B, N); images without crops have no masked patches."""
        if "masked" in batch:
            return batch["masked"].flatten(0, 1)
        config: Any = self.model.config
        images = batch["images"]
        return torch.zeros(LARGE * len(images), math.prod(config.grid), dtype=torch.bool, device=images.device)

    def answer(self, batch: Batch) -> Answers:
        """Return ``features`` (B, D), the vectors of images; ``outputs`` (B, K), probabilities; and the ``loss`` (B,).

        The two views for the loss are the image and its mirror image. The teacher has its first temperature, whatever the step,
        so that epochs can be compared.
        """
        student, teacher, outputs = self._both(batch)
        taught = teacher_probabilities(teacher.outputs, self.centre.mean, self.settings.teacher_temperature)
        loss = distillation_loss(outputs, taught.unflatten(0, (-1, LARGE)), self.settings.student_temperature)
        return {"features": student.vectors[::LARGE].float(), "outputs": taught[::LARGE], "loss": loss}

    def _taught(self, outputs: Tensor, centre: Centre) -> Tensor:
        """Return the teacher's probabilities of its outputs (…, K) in a step, and count the outputs for their centre."""
        if self.settings.centring:
            centre.add(outputs)
        return teacher_probabilities(outputs, centre.mean, self.temperature)

    def _both(self, batch: Batch, masked: Tensor | None = None) -> tuple[Projected, Projected, Tensor]:
        """Return the projection of the 2 B large crops by student and teacher, and the student's outputs of all crops (B, V, K).

        Crops of one size are one batch. Images without crops, (B, C, H, W), are taken with their mirror images as large crops.
        The student does not see the ``masked`` patches (2 B, N). Without an average the model is its own teacher.
        """
        images, count = batch["images"], len(batch["images"])
        large = images if images.ndim == 5 else torch.stack([images, images.flip(-1)], dim=1)
        pixels = self.preparation.normalize(large.flatten(0, 1))
        teacher = self._teacher[0] if self._teacher else self
        with torch.no_grad():
            taught = teacher.project(pixels, masked)
        alone = teacher is self and not torch.is_grad_enabled()
        student = taught if alone else self.project(pixels, masked, hidden=True)
        outputs = [student.outputs]
        if "small" in batch:
            outputs.append(self.project(self.preparation.normalize(batch["small"].flatten(0, 1))).outputs)
        return student, taught, torch.cat([part.unflatten(0, (count, -1)) for part in outputs], dim=1)


create = Dino.create
