"""What a Vision Transformer consists of, as data. Knows no torch, so that commands can check it in no time."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vitrail.checks import require_at_most, require_divisible, require_width
from vitrail.settings import Settings

Positive = Annotated[int, Field(gt=0, le=2**24)]  # limits keep a damaged or hostile file from filling the memory
Probability = Annotated[float, Field(ge=0, lt=1)]


def _height_and_width(value: Any) -> Any:
    """One number means a square; on the command line a pair is written ``224x160``."""
    if isinstance(value, str) and "x" in value:
        return tuple(value.split("x"))
    return value if isinstance(value, list | tuple) else (value, value)


Side = Annotated[int, Field(gt=0, le=2**16)]
Size = Annotated[tuple[Side, Side], BeforeValidator(_height_and_width)]


class ViTConfig(Settings):
    """Every choice of the Vision Transformer. Sizes in pixels are (height, width); one number means a square."""

    image_size: Size = (224, 224)
    """Height and width of the images."""
    patch_size: Size = (16, 16)
    """Height and width of a patch."""
    channels: Positive = 3
    """Colour channels: 3 for RGB, 1 for grey."""
    num_classes: Positive = 1000
    """Number of logits."""
    dim: Annotated[int, Field(gt=0, le=2**16)] = 768
    """Width D of a token."""
    depth: Annotated[int, Field(gt=0, le=1000)] = 12
    """Number of blocks L."""
    heads: Positive = 12
    """Attention heads k."""
    mlp_dim: Positive = 3072
    """Hidden width of the MLP."""
    embedding: Literal["conv", "linear", "stem", "resnet"] = "conv"
    """Patches to tokens: a strided convolution, flatten and multiply (the same numbers), a convolutional stem, or a ResNet."""
    resnet_depths: tuple[Annotated[int, Field(gt=0, le=1000)], ...] = ()
    """Blocks in every stage of the ResNet; none leaves its root alone."""
    resnet_width: Annotated[int, Field(gt=0, le=2**12)] = 64
    """Channels of the ResNet's root."""
    resnet_root: Literal["imagenet", "cifar"] = "imagenet"
    """Root of the ResNet: 7×7 of stride 2 and a maximum of stride 2, or 3×3 of stride 1 for small images."""
    position: Literal["none", "learned-1d", "learned-2d", "sincos-1d", "sincos-2d", "relative", "rotary"] = "learned-1d"
    """How a token knows where it stands."""
    pool: Literal["class", "mean", "attention"] = "class"
    """Tokens to one vector: class token, mean of the patches, attention pooling (MAP)."""
    head: Literal["linear", "mlp", "lecture"] = "linear"
    """One linear layer, Linear-tanh-Linear (pre-training), or Linear-GELU-Dropout-LayerNorm (lecture notes)."""
    mlp: Literal["gelu", "swiglu"] = "gelu"
    """Linear-GELU-Linear, or the gated SwiGLU."""
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
    norm_eps: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """Epsilon of the encoder's LayerNorms."""

    @model_validator(mode="after")
    def _combinations_work(self) -> Self:
        factor = {"sincos-1d": 2, "learned-2d": 2, "sincos-2d": 4, "rotary": 4}.get(self.position, 1)
        require_width(self.dim, self.heads, factor, f"the position {self.position}", per_head=self.position == "rotary")
        for side, image, patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            require_divisible(f"image {side}", image, f"patch {side}", patch)
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
        """Tokens before the patches: class token and registers."""
        return (self.pool == "class") + self.registers
