"""Configuration of a CvT, and the names of its sizes."""

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from vitrail.models.configs.base import (
    Depths,
    Epsilon,
    Heads,
    ImageConfig,
    Paddings,
    Probability,
    Ratio,
    Sides,
    Widths,
    require_mlps,
    require_patches,
    require_stages,
)


class CvTConfig(ImageConfig):
    """Configuration of the Convolutional vision Transformer (Wu et al. 2021, https://arxiv.org/abs/2103.15808)."""

    dims: Widths = (64, 192, 384)
    """Width of every stage."""
    depths: Depths = (1, 2, 10)
    """Blocks in every stage."""
    heads: Heads = (1, 3, 6)
    """Attention heads of every stage."""
    patch_sizes: Sides = (7, 3, 3)
    """Side of the patches that a stage turns into tokens."""
    strides: Sides = (4, 2, 2)
    """Distance of two patches, for every stage."""
    paddings: Paddings = (2, 1, 1)
    """Zeros around the input of every stage."""
    mlp_ratio: Ratio = 4.0
    """Hidden width of the MLPs divided by the tokens' width."""
    activation: Literal["quick-gelu", "gelu"] = "quick-gelu"
    """Activation of the MLPs. The authors' models were trained with ``x · sigmoid(1.702 x)``; transformers uses GELU."""
    dropout: Probability = 0.0
    """Dropout in the MLPs and on every branch's result."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the branches of the last stage's last block; grows linearly from 0 in its first."""
    norm_eps: Epsilon = 1e-5
    """Epsilon of the LayerNorms."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "attention_dropout", "stochastic_depth"))
    position: ClassVar[str] = "none"

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        of_patches = {"patch_sizes": self.patch_sizes, "strides": self.strides, "paddings": self.paddings}
        require_stages(self.depths, self.dims, self.heads, **of_patches)
        require_patches(self.image_size, self.patch_sizes, self.strides)
        require_mlps(self.dims, [self.mlp_ratio] * len(self.dims))
        return self


PRESETS: dict[str, dict[str, Any]] = {
    "CvT-13": {"depths": (1, 2, 10)},
    "CvT-13-384": {"depths": (1, 2, 10), "image_size": 384},
    "CvT-21": {"depths": (1, 4, 16)},
    "CvT-21-384": {"depths": (1, 4, 16), "image_size": 384},
    "CvT-W24-384": {"dims": (192, 768, 1024), "depths": (2, 2, 20), "heads": (3, 12, 16), "image_size": 384},
}
"""The sizes of table 2; -384 are the models fine-tuned on larger images."""

preset_of = {**PRESETS, **{name.lower(): fields for name, fields in PRESETS.items()}}.get
"""Returns the fields of a name in Vitrail's spelling or transformers', ``cvt-13``; None for an unknown name."""
