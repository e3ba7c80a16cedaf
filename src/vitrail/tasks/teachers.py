"""Teachers for distillation: models of this library, or any callable with its labels and its preparation of images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.images.plan import Plan
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.targets import Arrays, Targets
from vitrail.errors import ConfigError
from vitrail.weights.model_folder.folder import TrainedModel


@dataclass(frozen=True)
class CallableTeacher:
    """A network of any library, as ``teacher`` of `vitrail.train`.

    Args:
        model: a callable from images, float32 (B, C, H, W), to logits (B, classes). A torch module is put into evaluation mode
            and moved to the student's device; any other callable receives tensors on that device.
        labels: the names of the classes, in the order of the logits; integers are indices of the data's classes.
        preparation: the size and channels of the teacher's images, and the ``mean`` and ``std`` that normalize values of 0…1. The
            teacher sees the student's augmented images, resized to this size.
    """

    model: Callable[[Tensor], Tensor]
    labels: Sequence[str]
    preparation: Preparation
    multi_label: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.labels, str) or not isinstance(self.labels, Sequence):
            raise ConfigError("labels is not a list of names", where="labels", hint='give a name for each logit: ["cat", "dog"]')
        object.__setattr__(self, "labels", [str(label) for label in self.labels])
        if not callable(self.model):
            what = f"a {type(self.model).__name__} is not callable"
            raise ConfigError(what, where="model", hint="give a network, or a function")
        if not isinstance(self.preparation, Preparation):
            hint = "give vitrail.Preparation(size, mean=…, std=…)"
            raise ConfigError("the preparation is not a vitrail.Preparation", where="preparation", hint=hint)


@dataclass(frozen=True)
class WithAnswers:
    """Targets with the teacher's answer to the unaugmented image, an array, as ``teacher``; without it while there are none."""

    targets: Targets
    answers: Mapping[str, np.ndarray]
    """The teacher's answers by the name of an image; filled before the first step."""
    mixable: ClassVar[bool] = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        found = self.targets(item, plan, random)
        return {**found, "teacher": self.answers[item.name]} if self.answers else found


AnyTeacher = TrainedModel | CallableTeacher
LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey, as in Pillow (ITU-R BT.601)."""


def images_for(preparation: Preparation, pixels: Tensor) -> Tensor:
    """Return a student's pixels, uint8 (B, C, H, W), as a teacher with this preparation takes them, normalized."""
    images = _in_colours(pixels, preparation.channels)
    if images.shape[2:] != preparation.image_size:
        images = F.interpolate(images.float(), preparation.image_size, mode="bilinear", antialias=True)
    return preparation.normalize(images)


def _in_colours(pixels: Tensor, channels: int) -> Tensor:
    """Convert grey to RGB or RGB to grey: (B, C, H, W) to (B, channels, H, W)."""
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    return (pixels * torch.tensor(LUMINANCE, device=pixels.device).view(3, 1, 1)).sum(dim=1, keepdim=True)


def described_teacher(teacher: AnyTeacher) -> str:
    """Return a short description of a teacher, for settings, which cannot store it; raises `ConfigError` for another object."""
    if not isinstance(teacher, TrainedModel | CallableTeacher):
        raise ConfigError(
            f"a {type(teacher).__name__} has no labels and no preparation",
            where="teacher",
            hint="give vitrail.CallableTeacher(network, labels, preparation), a model of vitrail.open_model, or its path",
        )
    model: Any = teacher.model
    (height, width), channels = teacher.preparation.image_size, teacher.preparation.channels
    name = getattr(model, "__name__", type(model).__name__)
    return f"{name}, {len(teacher.labels)} classes, images {height}×{width}×{channels}"
