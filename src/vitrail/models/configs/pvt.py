"""Configuration of a Pyramid Vision Transformer, and the names of its sizes."""

from typing import Any, ClassVar, Self

from pydantic import model_validator

from vitrail.errors import ConfigError
from vitrail.models.configs.base import (
    Depths,
    Epsilon,
    Heads,
    ImageConfig,
    Probability,
    Ratios,
    Sides,
    Size,
    Widths,
    require_mlps,
    require_patches,
    require_stages,
)


class PyramidConfig(ImageConfig):
    """Fields of both versions of PVT; tuples have one number per stage."""

    dims: Widths = (64, 128, 320, 512)
    """Width of the tokens."""
    depths: Depths = (3, 4, 6, 3)
    """Blocks."""
    heads: Heads = (1, 2, 5, 8)
    """Attention heads."""
    reductions: Sides = (8, 4, 2, 1)
    """Factor by which the grid of keys and values is smaller than that of queries, along each side; 1 for no reduction."""
    mlp_ratios: Ratios = (8.0, 8.0, 4.0, 4.0)
    """Hidden width of the MLPs divided by the tokens' width."""
    qkv_bias: bool = True
    """Bias of the projections to q, k and v."""
    dropout: Probability = 0.0
    """Dropout in the MLPs, on every branch's result and on tokens with their positions."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last block's branches; grows linearly from 0 in the first."""
    norm_eps: Epsilon = 1e-6
    """Epsilon of the norms in blocks and behind them."""
    grid_norm_eps: Epsilon = 1e-5
    """Epsilon of the norms after convolutions that make a coarser grid, of tokens or of keys and values."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "attention_dropout", "stochastic_depth"))

    @model_validator(mode="after")
    def _numbers_for_each_stage(self) -> Self:
        require_stages(self.depths, self.dims, self.heads, reductions=self.reductions, mlp_ratios=self.mlp_ratios)
        require_mlps(self.dims, self.mlp_ratios)
        return self


class PVTConfig(PyramidConfig):
    """Configuration of the Pyramid Vision Transformer (Wang et al. 2021, https://arxiv.org/abs/2102.12122)."""

    patch_sizes: Sides = (4, 2, 2, 2)
    """Side of a patch, in pixels for the first stage, then in tokens of the previous stage."""

    position: ClassVar[str] = "learned-1d"

    @model_validator(mode="after")
    def _patches_for_each_stage(self) -> Self:
        require_stages(self.depths, self.dims, self.heads, patch_sizes=self.patch_sizes)
        require_patches(self.image_size, self.patch_sizes, self.patch_sizes)
        if self.reductions[-1] != 1:
            what = f"reductions end in {self.reductions[-1]}, but a class token is among the tokens of the last stage"
            raise ConfigError(what, where="reductions", hint=f"end them in 1: {(*self.reductions[:-1], 1)}")
        return self

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance of two patches in every stage: the side of a patch, since patches do not overlap."""
        return self.patch_sizes

    def grids(self, image_size: Size | None = None) -> list[tuple[int, int]]:
        """Return the rows and columns of tokens in every stage, for images of this size, by default the configuration's."""
        rows, columns = image_size or self.image_size
        found = []
        for side in self.patch_sizes:
            rows, columns = max(1, rows // side), max(1, columns // side)
            found.append((rows, columns))
        return found


DEPTHS = {"Tiny": (2, 2, 2, 2), "Small": (3, 4, 6, 3), "Medium": (3, 4, 18, 3), "Large": (3, 8, 27, 3)}
PRESETS: dict[str, dict[str, Any]] = {f"PVT-{size}": {"depths": depths} for size, depths in DEPTHS.items()}
"""The sizes of table 1."""


preset_of = {**PRESETS, **{name.lower().replace("-", "_"): fields for name, fields in PRESETS.items()}}.get
"""Returns the fields of a name, ``PVT-Tiny`` or the authors' ``pvt_tiny``; None for an unknown name."""
