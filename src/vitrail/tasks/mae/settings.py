"""Settings of masked autoencoding. Imports no torch."""

from typing import Annotated

from pydantic import Field

from vitrail.models.configs.base import Positive
from vitrail.tasks.settings import TaskSettings


class ReconstructionSettings(TaskSettings):
    """Masked autoencoding (He et al. 2021, https://arxiv.org/abs/2111.06377)."""

    name: str = "mae"
    mask_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Share of the patches that the encoder does not see, and whose pixels the decoder draws."""
    decoder_dim: Positive = 512
    """Width of the decoder."""
    decoder_depth: Positive = 8
    """Blocks of the decoder."""
    decoder_heads: Positive = 16
    """Attention heads of the decoder."""
    normalize_patches: bool = True
    """Whether the pixels of a patch are to be drawn without its mean, divided by its deviation."""


SETTINGS = ReconstructionSettings
