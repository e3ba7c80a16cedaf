"""Settings of self-distillation. Imports no torch."""

import math
from typing import Annotated, Any

from pydantic import Field

from vitrail.data.images.augment import Augmentation
from vitrail.errors import ConfigError
from vitrail.models.configs.base import Positive
from vitrail.tasks.settings import FeatureSettings

Share = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(gt=0, le=10)]
LEAST_OUT, MOST_OUT = 2**10, 2**16
"""Fewest and most outputs of the projection that follow from the number of images; the paper has the most."""
IMAGES_EACH = 16
"""Images for one output."""


class DinoSettings(FeatureSettings):
    """Self-distillation without labels (DINO, Caron et al. 2021, https://arxiv.org/abs/2104.14294)."""

    name: str = "dino"
    out_dim: Annotated[int, Field(ge=2, le=2**20)] | None = None
    """Outputs of the projection. Default: one for 16 images, as a power of two between 1,024 and 65,536."""
    hidden_dim: Positive = 2048
    """Width of the two hidden layers of the projection."""
    bottleneck_dim: Positive = 256
    """Width before the last layer of the projection."""
    batch_norm: bool = False
    """Whether the hidden layers of the projection have a BatchNorm, so that the outputs of images differ from the first step on:
    for convolutional models and short runs."""
    small_crops: Annotated[int, Field(ge=0, le=64)] = 6
    """Small crops of each image, beside two large ones. The teacher sees only the large ones."""
    small_size: Share = 96 / 224
    """Side of a small crop, as a fraction of the model's image size; it is rounded up to whole patches."""
    small_area: Share = 0.05
    """Least fraction of the image's area in a small crop; the most is ``augmentation.min_area``, the least of a large crop."""
    student_temperature: Temperature = 0.1
    """Temperature of the student's outputs."""
    teacher_temperature: Temperature = 0.04
    """Temperature of the teacher's outputs in the first step: the lower, the more certain they are."""
    last_teacher_temperature: Temperature = 0.07
    """Temperature of the teacher's outputs after the first 30 % of the steps; it grows to this linearly."""
    centring: bool = True
    """Whether the mean of the teacher's outputs is subtracted, so that no output wins for all images."""
    centre_decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the moving average of this mean."""
    teacher_decay: Annotated[float, Field(ge=0, lt=1)] = 0.996
    """Decay of the moving average of the weights, which is the teacher, in the first step; it grows to 1 along half a cosine."""
    frozen_epochs: Annotated[float, Field(ge=0)] = 1
    """Epochs at the beginning in which the last layer of the projection is not trained."""
    koleo: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a loss that spreads the vectors of a batch, summed over both large crops (KoLeo, as in DINOv2, Oquab et al. 2023,
    2304.07193); 0 for none."""
    patches: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the loss on masked patches of large crops (iBOT, Zhou et al. 2021, 2111.07832); 0 for none."""

    def require_possible(self, run: Any, *, starts: bool) -> None:
        self.require_crops(run.augmentation)
        if run.training.batch_size == "auto":
            hint = "give a number of images"
            raise ConfigError("--batch-size auto does not go with crops", where="training.batch_size", hint=hint)

    def require_crops(self, augmentation: Augmentation) -> None:
        """Raise `ConfigError` unless the augmentation crops images, with large crops that are larger than small ones."""
        if augmentation.crop != "resized":
            hint = "add --augmentation.crop resized, or take --recipe dino"
            raise ConfigError("self-distillation learns from crops of an image", where="augmentation.crop", hint=hint)
        if self.small_area > augmentation.min_area:
            what = f"small crops of at least {self.small_area:g} of the area are larger than large ones of at least"
            hint = "lower task.small_area, or raise augmentation.min_area"
            raise ConfigError(f"{what} {augmentation.min_area:g}", where="task.small_area", hint=hint)

    def outputs_for(self, images: int) -> int:
        """Return the number of outputs of the projection for a number of training images."""
        if self.out_dim is not None:
            return self.out_dim
        return min(MOST_OUT, max(LEAST_OUT, 2 ** round(math.log2(max(1, images / IMAGES_EACH)))))


SETTINGS = DinoSettings
