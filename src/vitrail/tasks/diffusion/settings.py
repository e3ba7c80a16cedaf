"""Settings of diffusion. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field

from vitrail.models.configs.base import Probability
from vitrail.tasks.settings import TaskSettings


class DiffusionSettings(TaskSettings):
    """Images made from noise, by a model that takes the noise out of images."""

    name: str = "diffusion"
    classes: bool = True
    """Use the labels of the data, where it has some; without, the model knows no classes."""
    label_dropout: Probability = 0.1
    """Fraction of the training images that are learned without their class, which guidance needs (Ho and Salimans 2022,
    https://arxiv.org/abs/2207.12598)."""
    min_snr: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Bound γ of the weight of an image's error, 5 in the paper (Hang et al. 2023, https://arxiv.org/abs/2303.09556); none by
    default, which weighs all times alike."""
    best: Literal["loss", "kernel"] = "loss"
    """Metric that chooses the epoch that is kept: the validation loss, or the kernel distance of 64 samples from validation
    images, by their pixels. The samples cost an epoch about as much as 200 more training images."""


SETTINGS = DiffusionSettings
