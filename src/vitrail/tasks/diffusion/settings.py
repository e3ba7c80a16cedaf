"""Settings of diffusion. Imports no torch."""

from typing import Annotated

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


SETTINGS = DiffusionSettings
