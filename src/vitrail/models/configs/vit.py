"""Configuration of a Vision Transformer: a field for every choice."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vitrail.checks import require_at_most, require_divisible, require_multiple, require_width
from vitrail.models.configs.base import Depth, ImageConfig, Positive, Probability, Size, Width
from vitrail.settings import numbers

Merging = Annotated[int, Field(ge=0, le=2**12)]


class ViTConfig(ImageConfig):
    """Configuration of a Vision Transformer. Sizes in pixels are (height, width); one number means a square."""

    patch_size: Size = (16, 16)
    """Height and width of a patch."""
    crop_remainder: bool = False
    """Crop the right and bottom of an image to whole patches, instead of refusing the size."""
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
    """Embedding of patches: a strided convolution (conv), flatten and multiply (linear; the same numbers), a convolutional stem,
    a stem with max pooling and BatchNorm (pooled-stem), or a ResNet."""
    resnet_depths: Annotated[tuple[Depth, ...], BeforeValidator(numbers)] = ()
    """Blocks in every stage of the ResNet; empty for its root alone."""
    resnet_width: Annotated[int, Field(gt=0, le=2**12)] = 64
    """Channels of the ResNet's root."""
    resnet_root: Literal["imagenet", "cifar", "whitened", "whitened-valid"] = "imagenet"
    """Root of the ResNet. imagenet: 7×7 of stride 2 and max pooling of stride 2; cifar: 3×3 of stride 1, for small images;
    whitened: filters fitted to the images before training, then 3×3 and max pooling of stride 2; whitened-valid: the same
    without padding, which gives one row and column of patches less and takes a quarter less time."""
    resnet_block: Literal["bottleneck", "pooled"] = "bottleneck"
    """Blocks of the ResNet. bottleneck: with standardised weights and GroupNorm, as in the paper's hybrids; pooled: pairs of 3×3
    convolutions with BatchNorm and max pooling, for short trainings."""
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
    """Coordinate of the rotary angles: the index of the patch, or its centre between −1 and 1."""
    rotary_grid: Size | None = None
    """Rows and columns that patch indices are scaled to, for any grid; not scaled by default."""
    rotary_offset: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.0
    """Index of the first patch in the rotary angles."""
    embedding_norm: Literal["none", "tokens", "projected", "patches"] = "none"
    """Norm before the blocks: none; on all tokens after positions are added (tokens); on each projected patch (projected); or on
    each patch before and after the projection (patches)."""
    pool: Literal["class", "mean", "attention", "attention-patches", "class+mean"] = "class"
    """Pooling of tokens to one vector: class token, mean of the patches, attention pooling (MAP) of all tokens or of the patches
    only, or class token and mean concatenated."""
    pool_heads: Positive | None = None
    """Heads of the attention pooling; as many as the blocks have by default."""
    pool_mlp_dim: Positive | None = None
    """Hidden width of the attention pooling's MLP; as in the blocks by default."""
    class_token: bool = False
    """Add a class token even if ``pool`` does not read it."""
    distillation_token: bool = False
    """Add a second token with its own head that learns from a teacher (DeiT); the logits are the mean of both heads'."""
    class_position: bool = True
    """Give class and distillation token a position as well; in DeiT III only patches have one."""
    final_norm: Literal["tokens", "pooled", "none"] = "tokens"
    """Position of the last norm: on all tokens, on the pooled vector, or none."""
    head: Literal["linear", "mlp", "lecture", "projection"] = "linear"
    """One linear layer, Linear-tanh-Linear (pre-training), Linear-GELU-Dropout-LayerNorm (lecture notes), or a linear map
    without bias to an embedding (CLIP)."""
    mlp: Literal["gelu", "gelu-tanh", "quick-gelu", "swiglu"] = "gelu"
    """MLP: Linear-GELU-Linear, the same with an approximation of GELU, or the gated SwiGLU."""
    block: Literal["sequential", "parallel"] = "sequential"
    """Order of attention and MLP: one after the other, or both on the same input."""
    norm: Literal["pre", "post", "residual-post"] = "pre"
    """Position of a branch's norm: before its layer, after the sum, or after the layer and before the sum."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """Kind of the norms: LayerNorm or RMSNorm."""
    registers: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Number of extra learned tokens without position (Darcet et al. 2023)."""
    qkv_bias: bool = True
    """Bias of the projections to q, k and v."""
    qk_norm: bool = False
    """Norm on each head's queries and keys."""
    attention_norm: bool = False
    """Norm on the concatenated heads, before the output projection."""
    mlp_norm: bool = False
    """Norm on the activations of the MLP."""
    linear_bias: bool = True
    """Bias of the attention's output projection and of both layers of the MLP."""
    layer_scale: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Initial value of LayerScale on every branch; no LayerScale by default."""
    dropout: Probability = 0.0
    """Dropout after the position, in the MLP and on every branch's result."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    head_dropout: Probability = 0.0
    """Dropout in the head."""
    patch_dropout: Probability = 0.0
    """Fraction of the patches that are dropped from every training image."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last block's branches; grows linearly from 0 in the first."""
    token_merging: Merging | Annotated[tuple[Merging, ...], BeforeValidator(numbers)] = 0
    """Number of patches that every block merges into similar ones, outside training (ToMe); or a number for each block, such as
    0,0,0,24, and 0 for the rest. At most half of the remaining patches are merged."""
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
            raise ValueError("crop_remainder needs the embedding 'conv' without a norm on patches")
        if self.embedding_norm in ("patches", "projected") and self.embedding not in ("conv", "linear"):
            raise ValueError(
                f"embedding_norm {self.embedding_norm!r} needs flat patches, and the embedding {self.embedding!r} has none"
            )
        if self.pool_heads is not None:
            require_divisible("dim", self.dim, "pool_heads", self.pool_heads)
        if self.block == "parallel" and self.norm != "pre":
            raise ValueError("a parallel block has one norm, before both of its layers; set norm to 'pre'")
        if self.distillation_token and (self.pool, self.head) != ("class", "linear"):
            raise ValueError("a distillation token needs the pool 'class' and the head 'linear'")
        if self.final_norm == "pooled" and self.pool == "class+mean":
            raise ValueError("the pool 'class+mean' joins normalised tokens; set final_norm to 'tokens'")
        if any(self.merged) and (self.is_relative or self.is_rotary or self.block == "parallel" or self.norm != "pre"):
            raise ValueError(
                "token_merging needs a sequential block with norm 'pre', and no relative or rotary positions; "
                "set another position, block or norm, or set token_merging to 0"
            )
        if isinstance(self.token_merging, tuple) and len(self.token_merging) > self.depth:
            raise ValueError(f"token_merging has {len(self.token_merging)} numbers for {self.depth} blocks")
        if self._unpadded and self.resnet_block != "pooled":
            raise ValueError("the root 'whitened-valid' needs resnet_block 'pooled'")
        if min(self.grid) < 1:
            raise ValueError(
                f"images of {self.image_size[0]}×{self.image_size[1]} hold no patch without padding; give larger ones"
            )
        if len(self.resnet_depths) > 8:
            raise ValueError("resnet_depths has more than 8 stages, after which no pixel of an image is left")
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
        """Name in figures: hybrids are their own family."""
        return "hybrid" if self.embedding == "resnet" else ""

    def at(self, height: int, width: int) -> Self:
        """Return the configuration for images of another size; raises `ConfigError` if the model does not support it."""
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
        lost = 1 if self._unpadded else 0  # pixels that are lost at the border
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
        """Tokens before the patches that have a position: class and distillation token, or 0."""
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
        """Width of the vector that the head reads."""
        return 2 * self.dim if self.pool == "class+mean" else self.dim
