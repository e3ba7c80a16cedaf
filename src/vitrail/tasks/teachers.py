"""Teachers for distillation: models of this library, or any callable with its labels and its preparation of images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from vitrail.data.images.preparation import Preparation
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


AnyTeacher = TrainedModel | CallableTeacher


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
