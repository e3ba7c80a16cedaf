"""Configuration of a TNT, and the names of its sizes."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from vitrail.checks import require_at_most, require_divisible
from vitrail.models.configs.base import Depth, Epsilon, ImageConfig, Positive, Probability, Ratio, Size, Width, require_mlps


class TNTConfig(ImageConfig):
    """Configuration of Transformer in Transformer (Han et al. 2021, https://arxiv.org/abs/2103.00112)."""

    patch_size: Size = (16, 16)
    """Height and width of a patch."""
    word_stride: Annotated[int, Field(gt=0, le=2**8)] = 4
    """Pixels from one word of a patch to the next."""
    dim: Width = 384
    """Width of a patch's token."""
    word_dim: Width = 24
    """Width of a word."""
    depth: Depth = 12
    """Number of blocks; each has a block on words and a block on patches."""
    heads: Positive = 6
    """Attention heads among patches."""
    word_heads: Positive = 4
    """Attention heads among words."""
    mlp_ratio: Ratio = 4.0
    """Hidden width of the MLPs divided by the tokens' width."""
    qkv_bias: bool = False
    """Bias of the projections to q, k and v."""
    legacy: bool = False
    """The variant of before June 2021: the convolution sees across patch borders, and in the blocks the projection of words to
    patches has a norm on each word before it and none after it."""
    dropout: Probability = 0.0
    """Dropout on the tokens, in the MLPs and on every branch's result."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last block's branches; grows linearly from 0 in the first."""
    norm_eps: Epsilon = 1e-5
    """Epsilon of the norms."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "attention_dropout", "stochastic_depth"))
    prefix: ClassVar[int] = 1
    position_prefix: ClassVar[int] = 1
    """Tokens before the patches: the class token."""
    registers: ClassVar[int] = 0
    distillation_token: ClassVar[bool] = False
    pool: ClassVar[str] = "class"
    pools_by_attention: ClassVar[bool] = False
    position: ClassVar[str] = "learned-1d"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for side, image, patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            require_divisible(f"image {side}", image, f"patch {side}", patch)
            require_divisible(f"patch {side}", patch, "word_stride", self.word_stride)
        require_divisible("dim", self.dim, "heads", self.heads)
        require_divisible("word_dim", self.word_dim, "word_heads", self.word_heads)
        require_at_most("number of patches", self.grid[0] * self.grid[1], 2**16)
        require_mlps((self.dim, self.word_dim), (self.mlp_ratio, self.mlp_ratio))
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.grid_of(*self.image_size)

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of patches of an image of this size."""
        return height // self.patch_size[0], width // self.patch_size[1]

    @property
    def word_grid(self) -> tuple[int, int]:
        """Rows and columns of words in a patch."""
        return self.patch_size[0] // self.word_stride, self.patch_size[1] // self.word_stride

    @property
    def words(self) -> int:
        """Number of words in a patch."""
        return self.word_grid[0] * self.word_grid[1]

    @property
    def size_multiple(self) -> tuple[int, int]:
        return self.patch_size

    @property
    def repeated(self) -> int:
        return self.depth


PRESETS: dict[str, dict[str, Any]] = {
    "TNT-S": {"dim": 384, "heads": 6, "word_dim": 24},
    "TNT-B": {"dim": 640, "heads": 10, "word_dim": 40},
    "TNT-S-legacy": {"dim": 384, "heads": 6, "word_dim": 24, "legacy": True},
}
"""The sizes of table 1, and the small one as it was before June 2021 (legacy)."""

TIMM = {"tnt_s_patch16_224": "TNT-S", "tnt_b_patch16_224": "TNT-B", "tnt_s_legacy_patch16_224": "TNT-S-legacy"}
"""Vitrail's names by timm's."""

preset_of = {**PRESETS, **{theirs: PRESETS[ours] for theirs, ours in TIMM.items()}}.get
"""Returns the fields of a name in Vitrail's spelling or timm's; None for an unknown name."""
