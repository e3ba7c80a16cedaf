"""Configuration of a Vision Transformer: a field for every choice."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vitrail.checks import require_at_most, require_divisible, require_multiple, require_width
from vitrail.models.configs.base import Depth, ImageConfig, Positive, Probability, Size, Width
from vitrail.settings import numbers

Merging = Annotated[int, Field(ge=0, le=2**12)]


class ViTConfig(ImageConfig):
    """Every choice of the Vision Transformer. Sizes in pixels are (height, width); one number means a square."""

    patch_size: Size = (16, 16)
    """Height and width of a patch."""
    crop_remainder: bool = False
    """Leave out what remains of an image to the right of and below its last whole patch, instead of refusing the size."""
    dim: Width = 768
    """Width D of a token."""
    depth: Depth = 12
    """Number of blocks L."""
    heads: Positive = 12
    """Attention heads k."""
    head_dim: Width | None = None
    """Width D_h of a head; dim / heads by default."""
    mlp_dim: Positive = 3072
    """Hidden width of the MLP."""
    embedding: Literal["conv", "linear", "stem", "pooled-stem", "resnet"] = "conv"
    """Patches to tokens: a strided convolution, flatten and multiply (the same numbers), a convolutional stem, one that halves by
    maxima and has BatchNorm, or a ResNet."""
    resnet_depths: Annotated[tuple[Depth, ...], BeforeValidator(numbers)] = ()
    """Blocks in every stage of the ResNet; none leaves its root alone."""
    resnet_width: Annotated[int, Field(gt=0, le=2**12)] = 64
    """Channels of the ResNet's root."""
    resnet_root: Literal["imagenet", "cifar", "whitened", "whitened-valid"] = "imagenet"
    """Root of the ResNet: 7×7 of stride 2 and a maximum of stride 2; or for small images 3×3 of stride 1; or filters that are
    fitted to the images before training, then 3×3 and a maximum of stride 2; or the last without padding, which makes one row
    and column of patches fewer of an image, in a quarter less time."""
    resnet_block: Literal["bottleneck", "pooled"] = "bottleneck"
    """Blocks of the ResNet: bottlenecks with standardised weights and GroupNorm, as in the paper's hybrids; or pairs of 3×3
    convolutions with BatchNorm that halve by maxima, for training in little time."""
    position: Literal[
        "none",
        "learned-1d",
        "learned-2d",
        "sincos-1d",
        "sincos-2d",
        "sincos-2d-simple",
        "relative",
        "relative-per-block",
        "rotary",
        "learned-1d+rotary",
    ] = "learned-1d"
    """Positions of the tokens; see docs/formulas.md."""
    rotary_base: Annotated[float, Field(gt=0, le=1e9)] = 100.0
    """Base of the rotary angles."""
    rotary_coordinates: Literal["patches", "unit"] = "patches"
    """Coordinate of the rotary angles: the number of the patch, or its place between −1 and 1."""
    rotary_grid: Size | None = None
    """Rows and columns that the numbers of the patches are scaled to, whatever the grid; not scaled by default."""
    rotary_offset: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.0
    """Number of the first patch."""
    embedding_norm: Literal["none", "tokens", "projected", "patches"] = "none"
    """Norm before the blocks: none, on all tokens with their positions, on each projected patch, or on each patch before and
    after projection."""
    pool: Literal["class", "mean", "attention", "attention-patches", "class+mean"] = "class"
    """Tokens to one vector: class token, mean of the patches, attention pooling (MAP) of all tokens or of the patches alone, or
    class token and mean side by side."""
    pool_heads: Positive | None = None
    """Heads of the attention pooling; as many as the blocks have by default."""
    pool_mlp_dim: Positive | None = None
    """Hidden width of the attention pooling's MLP; as in the blocks by default."""
    class_token: bool = False
    """A class token even where the pool does not read it."""
    distillation_token: bool = False
    """A second token, with a head of its own, that learns from a teacher (DeiT); logits are the mean of both heads'."""
    class_position: bool = True
    """Added positions have rows for class and distillation token, too; DeiT III has them for the patches alone."""
    final_norm: Literal["tokens", "pooled", "none"] = "tokens"
    """Where the last norm stands: on all tokens, on the pooled vector, or nowhere."""
    head: Literal["linear", "mlp", "lecture", "projection"] = "linear"
    """One linear layer, Linear-tanh-Linear (pre-training), Linear-GELU-Dropout-LayerNorm (lecture notes), or a linear map
    without bias to an embedding (CLIP)."""
    mlp: Literal["gelu", "gelu-tanh", "quick-gelu", "swiglu"] = "gelu"
    """Linear-GELU-Linear, the same with one of GELU's approximations, or the gated SwiGLU."""
    block: Literal["sequential", "parallel"] = "sequential"
    """Attention then MLP, or both side by side."""
    norm: Literal["pre", "post", "residual-post"] = "pre"
    """The norm of a branch: before its layer, after the sum, or after the layer and before the sum."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm."""
    registers: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Extra learned tokens without position (Darcet et al. 2023)."""
    qkv_bias: bool = True
    """Bias of the projections to q, k and v."""
    qk_norm: bool = False
    """Norm on each head's queries and keys."""
    attention_norm: bool = False
    """Norm on the results of all heads, before the output projection."""
    mlp_norm: bool = False
    """Norm on the activations of the MLP."""
    linear_bias: bool = True
    """Bias of the attention's output projection and of both layers of the MLP."""
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
    token_merging: Merging | Annotated[tuple[Merging, ...], BeforeValidator(numbers)] = 0
    """Outside training, how many patches every block merges into others like them (ToMe), or a number for each block, 0,0,0,24
    say, the rest 0; at most half of what is left."""
    norm_eps: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """Epsilon of the encoder's norms."""

    training_only: ClassVar[frozenset[str]] = frozenset(
        ("dropout", "attention_dropout", "head_dropout", "patch_dropout", "stochastic_depth")
    )

    @model_validator(mode="after")
    def _combinations_work(self) -> Self:
        per_head = self.is_rotary
        factor = 4 if per_head else {"sincos-1d": 2, "learned-2d": 2, "sincos-2d": 4, "sincos-2d-simple": 4}.get(self.position, 1)
        if self.head_dim is None:
            require_width(self.dim, self.heads, factor, f"the position {self.position}", per_head=per_head)
        else:
            name, width = ("head_dim", self.head_dim) if per_head else ("dim", self.dim)
            require_multiple(name, width, factor, f"the position {self.position}")
        for side, image, patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            whole = image - image % patch if self.crop_remainder else image
            require_divisible(f"image {side}", whole or image, f"patch {side}", patch)
        if self.crop_remainder and (self.embedding != "conv" or self.embedding_norm == "patches"):
            raise ValueError("crop_remainder goes with the embedding 'conv'")
        if self.embedding_norm in ("patches", "projected") and self.embedding not in ("conv", "linear"):
            raise ValueError(
                f"embedding_norm {self.embedding_norm!r} is for flat patches, not for the embedding {self.embedding!r}"
            )
        if self.pool_heads is not None:
            require_divisible("dim", self.dim, "pool_heads", self.pool_heads)
        if self.block == "parallel" and self.norm != "pre":
            raise ValueError("a parallel block has one norm, before both of its layers; set norm to 'pre'")
        if self.distillation_token and (self.pool, self.head) != ("class", "linear"):
            raise ValueError("a distillation token goes with the pool 'class' and the head 'linear'")
        if self.final_norm == "pooled" and self.pool == "class+mean":
            raise ValueError("the pool 'class+mean' joins tokens that the last LayerNorm has been on; set final_norm to 'tokens'")
        if any(self.merged) and (self.is_relative or self.is_rotary or self.block == "parallel" or self.norm != "pre"):
            raise ValueError(
                "token_merging leaves relative and rotary positions without a place, and happens between the two branches of a "
                "sequential block whose norms come first; take another position, block or norm, or set it to 0"
            )
        if isinstance(self.token_merging, tuple) and len(self.token_merging) > self.depth:
            raise ValueError(f"token_merging has {len(self.token_merging)} numbers for {self.depth} blocks")
        if self._unpadded and self.resnet_block != "pooled":
            raise ValueError("the root 'whitened-valid' goes with blocks that halve by maxima; set resnet_block to 'pooled'")
        if min(self.grid) < 1:
            raise ValueError(
                f"images of {self.image_size[0]}×{self.image_size[1]} hold no patch without padding; take larger ones"
            )
        if len(self.resnet_depths) > 8:
            raise ValueError("a ResNet of more than 8 stages leaves nothing of an image")
        most = 2**12 if self.is_relative else 2**16  # the relative bias has an entry for every pair
        require_at_most("number of patches", self.grid[0] * self.grid[1], most)
        return self

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        rows, columns = self.image_size
        patch = "×".join(map(str, dict.fromkeys(self.patch_size)))
        pools = {"class": "class token", "mean": "mean of the patches", "attention": "attention pooling"}
        parts = [
            f"dim {self.dim}, depth {self.depth}, heads {self.heads}, patch {patch}, images {rows}×{columns}×{self.channels}",
            f"{self.registers} register{'s' * (self.registers > 1)}" if self.registers else "",
            pools.get(self.pool, self.pool),
            "distillation token" if self.distillation_token else "",
            "" if self.mlp == "gelu" else self.mlp,
            f"norm epsilon {self.norm_eps:g}",
            f"{self.num_classes} classes" if self.num_classes else "no head",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def _unpadded(self) -> bool:
        """True if patches come from a ResNet without padding."""
        return self.embedding == "resnet" and self.resnet_root == "whitened-valid"

    @property
    def resnet_kind(self) -> Literal["hybrid", "resnet"]:
        """Convolutions and norms of the ResNet, as `vitrail.parts.vision.resnet.Kind` has them."""
        return "hybrid" if self.resnet_block == "bottleneck" else "resnet"

    @property
    def family(self) -> str:
        """The hybrids of the paper are a family of their own."""
        return "hybrid" if self.embedding == "resnet" else ""

    def at(self, height: int, width: int) -> Self:
        """Return the configuration for images of another size; raises `ConfigError` where a model cannot have it."""
        return self if (height, width) == self.image_size else self.changed(image_size=(height, width))

    @property
    def repeated(self) -> int | None:
        """Depth of the model; None if blocks merge tokens and so differ in cost."""
        return None if self.token_merging else self.depth

    @property
    def size_multiple(self) -> tuple[int, int]:
        return self.patch_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.grid_of(*self.image_size)

    def grid_of(self, height: Any, width: Any) -> tuple[Any, Any]:
        """Return the rows and columns of patches of an image of this size; sizes may be symbols of a graph."""
        lost = 1 if self._unpadded else 0  # pixels at the rim
        return (height - lost) // self.patch_size[0], (width - lost) // self.patch_size[1]

    @property
    def pools_by_attention(self) -> bool:
        """True if a learned query pools the tokens."""
        return self.pool.startswith("attention")

    @property
    def is_relative(self) -> bool:
        """True if positions are biases of the attention's scores."""
        return self.position.startswith("relative")

    @property
    def is_rotary(self) -> bool:
        """True if positions rotate queries and keys."""
        return self.position.endswith("rotary")

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class token, distillation token and registers."""
        return self.has_class_token + self.distillation_token + self.registers

    @property
    def position_prefix(self) -> int:
        """Tokens before the patches that have a position: class and distillation token, or none."""
        return self.prefix - self.registers if self.class_position else 0

    @property
    def has_class_token(self) -> bool:
        """True if the model has a class token."""
        return self.class_token or "class" in self.pool

    @property
    def merged(self) -> tuple[int, ...]:
        """Number of patches that each block merges into others."""
        if isinstance(self.token_merging, int):
            return (self.token_merging,) * self.depth
        return self.token_merging + (0,) * (self.depth - len(self.token_merging))

    @property
    def pooled_dim(self) -> int:
        """Width of what the head reads."""
        return 2 * self.dim if self.pool == "class+mean" else self.dim
