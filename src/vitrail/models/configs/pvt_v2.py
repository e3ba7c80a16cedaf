"""Configuration of a Pyramid Vision Transformer v2, and the names of its sizes."""

from typing import Any, ClassVar, Self

from pydantic import model_validator

from vitrail.models.configs.base import Sides, require_patches, require_stages
from vitrail.models.configs.pvt import DEPTHS, PyramidConfig


class PVTv2Config(PyramidConfig):
    """Configuration of the Pyramid Vision Transformer v2 (Wang et al. 2022, https://arxiv.org/abs/2106.13797)."""

    patch_sizes: Sides = (7, 3, 3, 3)
    """Side of a patch, in pixels for the first stage, then in tokens of the previous stage; half of it is the zero padding."""
    strides: Sides = (4, 2, 2, 2)
    """Distance of two patches, for every stage."""
    pooled: bool = False
    """Keys and values are pooled to a 7×7 grid, whatever the ``reductions`` ("linear" attention)."""

    position: ClassVar[str] = "none"

    @model_validator(mode="after")
    def _patches_for_each_stage(self) -> Self:
        require_stages(self.depths, self.dims, self.heads, patch_sizes=self.patch_sizes, strides=self.strides)
        require_patches(self.image_size, self.patch_sizes, self.strides)
        return self


PRESETS: dict[str, dict[str, Any]] = {
    "PVTv2-b0": {"depths": DEPTHS["Tiny"], "dims": (32, 64, 160, 256)},
    "PVTv2-b1": {"depths": DEPTHS["Tiny"]},
    "PVTv2-b2": {"depths": DEPTHS["Small"]},
    "PVTv2-b2-li": {"depths": DEPTHS["Small"], "pooled": True},
    "PVTv2-b3": {"depths": DEPTHS["Medium"]},
    "PVTv2-b4": {"depths": DEPTHS["Large"]},
    "PVTv2-b5": {"depths": (3, 6, 40, 3), "mlp_ratios": (4, 4, 4, 4)},
}
"""The sizes of table 1."""


preset_of = {**PRESETS, **{f"pvt_v2_{name[6:].replace('-', '_')}": fields for name, fields in PRESETS.items()}}.get
"""Returns the fields of a name, ``PVTv2-b2-li`` or the authors' and timm's ``pvt_v2_b2_li``; None for an unknown name."""
