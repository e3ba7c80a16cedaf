"""Configuration of a T2T-ViT, and the names of its sizes."""

from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vitrail.checks import require_at_most, require_width
from vitrail.errors import ConfigError
from vitrail.models.configs.base import Depth, Epsilon, ImageConfig, Positive, Probability, Width, require_patches
from vitrail.settings import numbers

Side = Annotated[int, Field(gt=0, le=2**6)]
Sides = Annotated[tuple[Side, ...], BeforeValidator(numbers), Field(min_length=1, max_length=8)]


class T2TConfig(ImageConfig):
    """Configuration of the Tokens-to-Token ViT (Yuan et al. 2021, https://arxiv.org/abs/2101.11986)."""

    patch_sizes: Sides = (7, 3, 3)
    """Side of a patch in every soft split."""
    strides: Sides = (4, 2, 2)
    """Distance of two patches, in every soft split."""
    token_mixer: Literal["performer", "transformer"] = "performer"
    """Attention between two splits: by random features (performer), or a softmax over all scores (transformer)."""
    token_dim: Width = 64
    """Width of the tokens between two splits."""
    random_features: Annotated[int, Field(gt=0, le=2**12)] = 32
    """Random features of a Performer."""
    token_dropout: Probability = 0.1
    """Dropout between two splits; the authors use 0.1 with Performers, 0 with Transformers."""
    dim: Width = 384
    """Width D of a token after the last split."""
    depth: Depth = 14
    """Number of blocks."""
    heads: Positive = 6
    """Attention heads of a block."""
    mlp_dim: Positive = 1152
    """Hidden width of the MLP of a block."""
    attention_scale: Literal["width", "head"] = "width"
    """Divisor of the blocks' scores: the square root of the token's width, as in all weights that the authors released, or of a
    head's width, the default of their code."""
    qkv_bias: bool = False
    """Bias of the blocks' projections to q, k and v."""
    dropout: Probability = 0.0
    """Dropout after the position, in the MLPs and on the result of every branch."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights of the blocks."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last block's branches; grows linearly from 0 in the first."""
    norm_eps: Epsilon = 1e-5
    """Epsilon of the norms."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "attention_dropout", "stochastic_depth", "token_dropout"))
    prefix: ClassVar[int] = 1
    """Tokens before the patches: the class token."""
    position_prefix: ClassVar[int] = 1
    """Tokens before the patches that have a position."""
    pool: ClassVar[str] = "class"
    pools_by_attention: ClassVar[bool] = False
    distillation_token: ClassVar[bool] = False
    registers: ClassVar[int] = 0
    position: ClassVar[str] = "sincos-1d"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        require_width(self.dim, self.heads, 2, "the 1-D sin-cos position")
        if len(self.patch_sizes) != len(self.strides):
            what = f"{len(self.patch_sizes)} splits in patch_sizes, {len(self.strides)} in strides"
            raise ConfigError(what, where="model", hint="give a number for each split")
        require_patches(self.image_size, self.patch_sizes, self.strides)
        if min(self.grid) < 1:
            raise ConfigError(f"images of {self.image_size} are less than one patch", where="model", hint="give larger images")
        require_at_most("number of patches", prod(self.grid), 2**16)
        return self

    @property
    def paddings(self) -> tuple[int, ...]:
        """Zeros on every side of each split's input: half of the overlap of patches, rounded up."""
        return tuple((side - stride + 1) // 2 for side, stride in zip(self.patch_sizes, self.strides, strict=True))

    @property
    def patch_size(self) -> tuple[int, int]:
        """Pixels from one token to the next, down and across."""
        return prod(self.strides), prod(self.strides)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens after the last split."""
        return self.grid_of(*self.image_size)

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of tokens of an image of this size."""
        for side, stride, padding in zip(self.patch_sizes, self.strides, self.paddings, strict=True):
            height, width = ((length + 2 * padding - side) // stride + 1 for length in (height, width))
        return height, width

    @property
    def repeated(self) -> int | None:
        return self.depth


PRESETS: dict[str, dict[str, Any]] = {
    f"T2T-ViT{kind}-{depth}": {"dim": dim, "depth": depth, "heads": dim // 64, "mlp_dim": ratio * dim, **tokens}
    for kind, tokens in (("", {}), ("_t", {"token_mixer": "transformer", "token_dropout": 0.0}))
    for depth, dim, ratio in ((7, 256, 2), (10, 256, 2), (12, 256, 2), (14, 384, 3), (19, 448, 3), (24, 512, 3))
    if depth > 12 or not kind
}
"""The sizes of table 1 and of the lite models, with a Performer between splits; the larger sizes also with a Transformer (_t)."""


preset_of = {**PRESETS, **{name.lower().replace("-", "_"): fields for name, fields in PRESETS.items()}}.get
"""Returns the fields of a name in Vitrail's spelling or the authors', ``t2t_vit_t_14``; None for an unknown name."""
