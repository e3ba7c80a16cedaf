"""The class of an image, learned from a teacher's answers as well (Touvron et al. 2021, https://arxiv.org/abs/2012.12877)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.class_matching import match_classes
from vitrail.data.images.plan import Plan
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.batches import Batch
from vitrail.data.targets import Arrays, Targets
from vitrail.errors import ConfigError
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.settings import DistillationSettings
from vitrail.tasks.task import Options
from vitrail.tasks.teachers import AnyTeacher
from vitrail.weights.model_folder.imagenet import aliases_of

LUMINANCE = (0.299, 0.587, 0.114)
"""Red, green and blue in grey, as Pillow has it (ITU-R BT.601)."""


class Distillation(Classification):
    """``(1 - λ) · cross-entropy + λ · what differs from the teacher``, equations (2) and (3), λ being the weight.

    The second term is on the logits of the distillation token, where the model has one.

    Args:
        teacher: gives the logits to learn from.
        distillation: how they count. Where the teacher is asked once, its logits are in ``answers``, by the names of the images.
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
        """Return the cross-entropy with the teacher's best class, or ``τ² KL(teacher / τ, student / τ)``, of the images."""
        if self.distillation.kind == "hard":
            return F.cross_entropy(logits, teacher.argmax(dim=1))
        t = self.distillation.temperature
        student, teacher = (logits / t).log_softmax(dim=1), (teacher / t).log_softmax(dim=1)
        return t**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


@dataclass(frozen=True)
class WithAnswers:
    """Targets, and as ``teacher`` the logits (classes,) for the image as it is, whatever it is changed to; once there are any."""

    targets: Targets
    answers: Mapping[str, np.ndarray]
    """Logits by the name of an image."""
    mixable: ClassVar[bool] = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        found = self.targets(item, plan, random)
        return {**found, "teacher": self.answers[item.name]} if self.answers else found


class Teacher:
    """A model that answers for the same pixels as the student, normalised as it learned.

    It is no part of the task that holds it: it is neither trained nor averaged nor kept in checkpoints.

    Args:
        given: the model.
        data: what the student learns from; its classes are among the teacher's labels, in any order.

    Raises:
        DataError: a class that the teacher does not know.
        ConfigError: images with several labels, which there is no distillation for.
    """

    def __init__(self, given: AnyTeacher, data: ImageData):
        if data.multi_label or given.multi_label:
            whose = "the images have" if data.multi_label else "the teacher gives"
            hint = "leave the teacher out, or take data and a teacher with one label an image"
            raise ConfigError(f"{whose} several labels each, and distillation is for one", where="--teacher", hint=hint)
        self.index = match_classes(data.classes, given.labels, where="--teacher", aliases=aliases_of(given.labels))
        self.preparation, self.classes = given.preparation, len(given.labels)
        self.model: Any = given.model.eval() if isinstance(given.model, nn.Module) else given.model

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Convert a student's pixels, uint8 (B, C, H, W), to logits (B, classes) in the order of the data's classes.

        Raises:
            ConfigError: the answers are no logits of so many classes, or not finite.
        """
        height, width = self.preparation.image_size
        images = _in_colours(pixels, self.preparation.channels)
        if images.shape[2:] != (height, width):
            images = F.interpolate(images.float(), (height, width), mode="bilinear", antialias=True)
        model = self.model.to(pixels.device) if isinstance(self.model, nn.Module) else self.model
        logits = model(self.preparation.normalize(images))
        if not isinstance(logits, Tensor) or logits.shape != (len(images), self.classes):
            answers = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise ConfigError(
                f"the teacher answers {len(images)} images with {answers}, and has {self.classes} labels",
                where="teacher",
                hint="give a callable that returns logits (images, classes): lambda images: network(images).logits, say",
            )
        if not logits.isfinite().all():
            hint = "look at its answers to such images; a teacher in half precision may need float32"
            raise ConfigError("the teacher's logits are not finite", where="teacher", hint=hint)
        return logits[:, self.index]


def _in_colours(pixels: Tensor, channels: int) -> Tensor:
    """Convert grey to RGB or RGB to grey: (B, C, H, W) to (B, channels, H, W)."""
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    return (pixels * torch.tensor(LUMINANCE, device=pixels.device).view(3, 1, 1)).sum(dim=1, keepdim=True)
