"""What a Vision Transformer consists of, as data. Knows no torch, so that commands can check it in no time."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vitrail.checks import require_at_most, require_divisible, require_multiple, require_width
from vitrail.settings import Settings

Positive = Annotated[int, Field(gt=0, le=2**24)]  # limits keep a damaged or hostile file from filling the memory
Probability = Annotated[float, Field(ge=0, lt=1)]


def _height_and_width(value: Any) -> Any:
    """One number means a square; on the command line a pair is written ``224x160``."""
    if isinstance(value, str) and "x" in value:
        return tuple(value.split("x"))
    return value if isinstance(value, list | tuple) else (value, value)


def _numbers(value: Any) -> Any:
    """On the command line several numbers are written ``0,0,24``."""
    return tuple(value.split(",")) if isinstance(value, str) and "," in value else value


Side = Annotated[int, Field(gt=0, le=2**16)]
Merging = Annotated[int, Field(ge=0, le=2**12)]
Size = Annotated[tuple[Side, Side], BeforeValidator(_height_and_width)]


class ViTConfig(Settings):
    """Every choice of the Vision Transformer. Sizes in pixels are (height, width); one number means a square."""

    image_size: Size = (224, 224)
    """Height and width of the images."""
    patch_size: Size = (16, 16)
    """Height and width of a patch."""
    channels: Positive = 3
    """Colour channels: 3 for RGB, 1 for grey."""
    num_classes: Annotated[int, Field(ge=0, le=2**24)] = 1000
    """Number of logits; 0 leaves out the head, and the model gives the pooled vector."""
    dim: Annotated[int, Field(gt=0, le=2**16)] = 768
    """Width D of a token."""
    depth: Annotated[int, Field(gt=0, le=1000)] = 12
    """Number of blocks L."""
    heads: Positive = 12
    """Attention heads k."""
    head_dim: Annotated[int, Field(gt=0, le=2**16)] | None = None
    """Width D_h of a head; dim / heads by default."""
    mlp_dim: Positive = 3072
    """Hidden width of the MLP."""
    embedding: Literal["conv", "linear", "stem", "pooled-stem", "resnet"] = "conv"
    """Patches to tokens: a strided convolution, flatten and multiply (the same numbers), a convolutional stem, one that halves by
    maxima and has BatchNorm, or a ResNet."""
    resnet_depths: tuple[Annotated[int, Field(gt=0, le=1000)], ...] = ()
    """Blocks in every stage of the ResNet; none leaves its root alone."""
    resnet_width: Annotated[int, Field(gt=0, le=2**12)] = 64
    """Channels of the ResNet's root."""
    resnet_root: Literal["imagenet", "cifar"] = "imagenet"
    """Root of the ResNet: 7×7 of stride 2 and a maximum of stride 2, or 3×3 of stride 1 for small images."""
    position: Literal["none", "learned-1d", "learned-2d", "sincos-1d", "sincos-2d", "sincos-2d-simple", "relative", "rotary"] = (
        "learned-1d"
    )
    """How a token knows where it stands."""
    embedding_norm: Literal["none", "tokens", "patches"] = "none"
    """LayerNorm before the blocks: none, on all tokens with their positions, or on each patch before and after projection."""
    pool: Literal["class", "mean", "attention", "class+mean"] = "class"
    """Tokens to one vector: class token, mean of the patches, attention pooling (MAP), or the first two side by side."""
    class_token: bool = False
    """A class token even where the pool does not read it."""
    distillation_token: bool = False
    """A second token, with a head of its own, that learns from a teacher (DeiT); logits are the mean of both heads'."""
    final_norm: Literal["tokens", "pooled"] = "tokens"
    """Where the last LayerNorm stands: on all tokens, or on the pooled vector."""
    head: Literal["linear", "mlp", "lecture", "projection"] = "linear"
    """One linear layer, Linear-tanh-Linear (pre-training), Linear-GELU-Dropout-LayerNorm (lecture notes), or a linear map
    without bias to an embedding (CLIP)."""
    mlp: Literal["gelu", "gelu-tanh", "quick-gelu", "swiglu"] = "gelu"
    """Linear-GELU-Linear, the same with one of GELU's approximations, or the gated SwiGLU."""
    block: Literal["sequential", "parallel"] = "sequential"
    """Attention then MLP, or both side by side."""
    registers: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Extra learned tokens without position (Darcet et al. 2023)."""
    qkv_bias: bool = True
    """Whether the projections to q, k and v have a bias."""
    qk_norm: bool = False
    """LayerNorm on each head's queries and keys."""
    layer_scale: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Initial value of LayerScale on every branch; none by default."""
    dropout: Probability = 0.0
    """Dropout after the position, in the MLP and on every branch's result."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    head_dropout: Probability = 0.0
    """Dropout in the head."""
    patch_dropout: Probability = 0.0
    """Share of the patches left out of every training image."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last block's branches; grows linearly from 0 in the first."""
    token_merging: Merging | Annotated[tuple[Merging, ...], BeforeValidator(_numbers)] = 0
    """Outside training, how many patches every block merges into others like them (ToMe), or a number for each block, 0,0,0,24
    say, the rest 0; at most half of what is left."""
    norm_eps: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """Epsilon of the encoder's LayerNorms."""

    @model_validator(mode="after")
    def _combinations_work(self) -> Self:
        factor = {"sincos-1d": 2, "learned-2d": 2, "sincos-2d": 4, "sincos-2d-simple": 4, "rotary": 4}.get(self.position, 1)
        per_head = self.position == "rotary"
        if self.head_dim is None:
            require_width(self.dim, self.heads, factor, f"the position {self.position}", per_head=per_head)
        else:
            name, width = ("head_dim", self.head_dim) if per_head else ("dim", self.dim)
            require_multiple(name, width, factor, f"the position {self.position}")
        for side, image, patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            require_divisible(f"image {side}", image, f"patch {side}", patch)
        if self.embedding_norm == "patches" and self.embedding not in ("conv", "linear"):
            raise ValueError(f"embedding_norm 'patches' is for flat patches, not for the embedding {self.embedding!r}")
        if self.distillation_token and (self.pool, self.head) != ("class", "linear"):
            raise ValueError("a distillation token goes with the pool 'class' and the head 'linear'")
        if self.final_norm == "pooled" and self.pool == "class+mean":
            raise ValueError("the pool 'class+mean' joins tokens that the last LayerNorm has been on; set final_norm to 'tokens'")
        if any(self.merged) and (self.position in ("relative", "rotary") or self.block == "parallel"):
            raise ValueError(
                "token_merging leaves relative and rotary positions without a place, and happens between the two branches of a "
                "sequential block; take another position or block, or set it to 0"
            )
        if isinstance(self.token_merging, tuple) and len(self.token_merging) > self.depth:
            raise ValueError(f"token_merging has {len(self.token_merging)} numbers for {self.depth} blocks")
        if len(self.resnet_depths) > 8:
            raise ValueError("a ResNet of more than 8 stages leaves nothing of an image")
        most = 2**12 if self.position == "relative" else 2**16  # the relative bias has an entry for every pair
        require_at_most("number of patches", self.grid[0] * self.grid[1], most)
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class token, distillation token and registers."""
        return self.has_class_token + self.distillation_token + self.registers

    @property
    def has_class_token(self) -> bool:
        """Whether there is a class token."""
        return self.class_token or "class" in self.pool

    @property
    def merged(self) -> tuple[int, ...]:
        """How many patches each of the blocks merges into others."""
        if isinstance(self.token_merging, int):
            return (self.token_merging,) * self.depth
        return self.token_merging + (0,) * (self.depth - len(self.token_merging))

    @property
    def pooled_dim(self) -> int:
        """Width of what the head reads."""
        return 2 * self.dim if self.pool == "class+mean" else self.dim
