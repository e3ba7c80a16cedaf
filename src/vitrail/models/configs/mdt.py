"""What a Masked Diffusion Transformer consists of, and the names of its sizes."""

import math
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from vitrail.models.configs.base import Depth
from vitrail.models.configs.dit import SIZES, DiTConfig


class MDTConfig(DiTConfig):
    """Every choice of MDT (Gao et al. 2023, https://arxiv.org/abs/2303.14389): a DiT that also learns from masked images.

    Under a mask the first blocks, the encoder, see the other patches alone; the last ones, the decoder, see all.
    """

    decoder_depth: Depth = 2
    """Number of the blocks that are the decoder."""
    mask_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Least fraction of the patches that are masked in the second pass of a training step."""
    mask_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Width of the interval above ``mask_ratio`` from which the fraction of an image is drawn; 0 masks as many of every image."""

    training_only: ClassVar[frozenset[str]] = frozenset(("mask_ratio", "mask_spread"))

    @model_validator(mode="after")
    def _some_blocks_and_patches_are_left(self) -> Self:
        if self.decoder_depth >= self.depth:
            raise ValueError(f"a decoder_depth of {self.decoder_depth} leaves no encoder of {self.depth} blocks")
        if self.mask_ratio + self.mask_spread >= 1:
            raise ValueError(f"a mask_ratio of {self.mask_ratio} and a mask_spread of {self.mask_spread} can mask every patch")
        return self

    def seen(self, ratio: float) -> int:
        """Return the number of patches that the encoder sees where this fraction is masked: rounded down, but one or more."""
        return max(1, int(math.prod(self.grid) * (1 - ratio)))

    @property
    def repeated(self) -> None:
        return None

    @property
    def summary(self) -> str:
        return f"{super().summary}, decoder depth {self.decoder_depth}"


class MDTv2Config(MDTConfig):
    """Every choice of MDTv2, whose encoder is a U: its later half takes up the results of the earlier one."""

    decoder_depth: Depth = 4
    """Number of the blocks that are the decoder."""
    mask_spread: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Width of the interval above ``mask_ratio`` from which the fraction of an image is drawn; 0 masks as many of every image."""

    @model_validator(mode="after")
    def _the_encoder_has_two_halves(self) -> Self:
        if (self.depth - self.decoder_depth) % 2:
            what = f"an encoder of {self.depth - self.decoder_depth} blocks (depth {self.depth} less decoder_depth"
            raise ValueError(f"{what} {self.decoder_depth}) has no two halves; change one of them by 1")
        return self


PRESETS = {f"MDT-{size}/2": {**fields, "patch_size": 2} for size, fields in SIZES.items()}
PRESETS_V2 = {f"MDTv2-{size}/2": {**fields, "patch_size": 2} for size, fields in SIZES.items()}
