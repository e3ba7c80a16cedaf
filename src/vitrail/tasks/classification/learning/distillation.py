"""Classification with distillation from a teacher (Touvron et al. 2021, https://arxiv.org/abs/2012.12877)."""

from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.class_matching import match_classes
from vitrail.data.items import ImageData
from vitrail.data.loading.batches import Batch
from vitrail.data.targets import Targets
from vitrail.errors import ConfigError
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.settings import DistillationSettings
from vitrail.tasks.task import Options
from vitrail.tasks.teachers import AnyTeacher, WithAnswers, images_for
from vitrail.weights.model_folder.imagenet import aliases_of


class Distillation(Classification):
    """``(1 - λ) · cross-entropy + λ · distillation loss``, equations (2) and (3); λ is the weight of the settings.

    The distillation loss is computed on the logits of the distillation token if the model has one.

    Args:
        teacher: the teacher, which computes logits.
        distillation: the settings. With ``once``, the teacher's logits are in ``answers``, by the names of the images.
        others: as in `Classification`.
    """

    def __init__(self, *others: Any, teacher: "Teacher", distillation: DistillationSettings, **more: Any):
        super().__init__(*others, **more)
        self.teacher, self.distillation = teacher, distillation
        self.answers: dict[str, np.ndarray] = {}

    @classmethod
    def arguments(cls, data: ImageData, options: Options) -> dict[str, Any]:
        assert options.teacher is not None
        teacher = Teacher(options.teacher, data)
        return {**super().arguments(data, options), "teacher": teacher, "distillation": options.distillation}

    def learned_targets(self, *, mixed: bool) -> Targets:
        targets = super().learned_targets(mixed=mixed)
        return WithAnswers(targets, self.answers) if self.distillation.once else targets

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        images, labels = self.images(batch), batch["labels"]
        if len(self.model.heads()) > 1:
            logits, distilled = self.network(images, separate=True)
            answer = logits + distilled
        else:
            logits = distilled = answer = self.network(images)
        weight, teacher = self.distillation.weight, batch["teacher"] if "teacher" in batch else self.teacher(batch["images"])
        loss = (1 - weight) * self.loss(logits.float(), labels) + weight * self.teachers_loss(distilled.float(), teacher.float())
        return {"loss": loss, "top1": self.hits(answer, labels)}

    def teachers_loss(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Return the mean cross-entropy with the teacher's best class (hard), or ``τ² KL(teacher / τ, student / τ)`` (soft)."""
        if self.distillation.kind == "hard":
            return F.cross_entropy(logits, teacher.argmax(dim=1))
        t = self.distillation.temperature
        student, teacher = (logits / t).log_softmax(dim=1), (teacher / t).log_softmax(dim=1)
        return t**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


class Teacher:
    """A model that predicts the student's images, with its own size and normalization.

    It is not a submodule of the task: it is not trained, averaged or saved in checkpoints.

    Args:
        given: the model.
        data: the student's data; its classes are among the teacher's labels, in any order.

    Raises:
        DataError: the teacher does not know a class of the data.
        ConfigError: the data or the teacher has several labels per image.
    """

    def __init__(self, given: AnyTeacher, data: ImageData):
        if data.multi_label or given.multi_label:
            whose = "the images have" if data.multi_label else "the teacher gives"
            hint = "leave the teacher out, or take data and a teacher with one label per image"
            raise ConfigError(f"{whose} several labels each, and distillation needs one per image", where="--teacher", hint=hint)
        self.index = match_classes(data.classes, given.labels, where="--teacher", aliases=aliases_of(given.labels))
        self.preparation, self.classes = given.preparation, len(given.labels)
        self.model: Any = given.model.eval() if isinstance(given.model, nn.Module) else given.model

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Compute the logits (B, classes), in the order of the data's classes, of a student's pixels, uint8 (B, C, H, W).

        Raises:
            ConfigError: the teacher's output has another shape, or is not finite.
        """
        model = self.model.to(pixels.device) if isinstance(self.model, nn.Module) else self.model
        images = images_for(self.preparation, pixels)
        logits = model(images)
        if not isinstance(logits, Tensor) or logits.shape != (len(images), self.classes):
            answers = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise ConfigError(
                f"the teacher returns {answers} for {len(images)} images, expected {(len(images), self.classes)}",
                where="teacher",
                hint="give a callable that returns logits (images, classes), such as lambda images: network(images).logits",
            )
        if not logits.isfinite().all():
            hint = "check the teacher's output for these images; a teacher in half precision may need float32"
            raise ConfigError("the teacher's logits are not finite", where="teacher", hint=hint)
        return logits[:, self.index]
