"""Configuration of a ViTPose, and the names of its sizes."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from vitrail.models.configs.base import ENLARGED, Size
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vit_names import SIZES

Decoder = Literal["classic", "simple"]
DECODER_DIM = 256
"""Channels of the published decoders."""
NARROW = 192
"""Width of a backbone up to which the decoder has half as many channels: with little data it learns more in the same time."""
WITHOUT_MEANING = (
    "pool_heads", "pool_mlp_dim", "distillation_token", "head", "head_dropout", "patch_dropout", "token_merging",
    "crop_remainder",
)  # fmt: skip
"""Fields of a ViT that configure its pooled vector and head, or drop patches: a heatmap needs every patch."""


class ViTPoseConfig(ViTConfig):
    """Configuration of ViTPose (Xu et al. 2022, https://arxiv.org/abs/2204.12484): any ViT, and a decoder of heatmaps.

    With ``experts`` it is ViTPose+ (Xu et al. 2023, https://arxiv.org/abs/2212.04246).
    """

    image_size: Size = (256, 192)
    """Height and width of the images, each of one person."""
    num_classes: Annotated[int, Field(ge=1, le=2**24)] = 17
    """Number of joints; each has a heatmap."""
    pool: Literal["mean"] = "mean"
    """Pooling of the patches to one vector, for studies; the decoder reads every patch."""
    final_norm: Literal["tokens", "none"] = "tokens"
    """Position of the last norm: on all tokens, or none."""
    decoder: Decoder = "classic"
    """Patches to heatmaps: two transposed convolutions and a 1×1 convolution, or bilinear upsampling and a 3×3 convolution."""
    decoder_dim: Annotated[int, Field(ge=1, le=2**16)] = DECODER_DIM
    """Channels between the convolutions of the classic decoder; ignored by the simple one."""
    patch_padding: Annotated[int, Field(ge=0, le=2**10)] = 0
    """Zeros around the image, in pixels, before it is cut into patches."""
    shared_position: bool = False
    """Add one learned vector to every patch besides its position; in pre-trained weights it is the class token's position."""
    experts: Annotated[int, Field(ge=0, le=2**10)] = 0
    """Experts in the MLP of every block, one for each data set; 0 for a plain MLP."""
    expert_dim: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Number of the MLP's ``dim`` outputs that an expert computes."""
    expert: Annotated[int, Field(ge=0, le=2**10)] = 0
    """Number of the expert that is used, from 0; in the published models 0 is COCO's."""

    answer: ClassVar[Literal["vector", "heatmaps", "text"]] = "heatmaps"

    @field_validator(*WITHOUT_MEANING)
    @classmethod
    def _goes_without(cls, value: Any, info: ValidationInfo) -> Any:
        if value != cls.model_fields[str(info.field_name)].default:
            raise ValueError("a ViTPose makes heatmaps of all patches and does not use this field; remove it")
        return value

    @model_validator(mode="after")
    def _combinations_have_meaning(self) -> Self:
        if self.patch_padding and (self.embedding != "conv" or self.embedding_norm == "patches"):
            raise ValueError("patch_padding needs the embedding 'conv' without a norm on patches")
        if 2 * self.patch_padding >= min(self.patch_size):
            raise ValueError(f"a patch_padding of {self.patch_padding} adds patches without pixels; give less than half a patch")
        if self.shared_position and (not self.position.startswith("learned-1d") or self.has_class_token):
            raise ValueError("shared_position needs the position 'learned-1d' and no class token, whose position it replaces")
        if bool(self.experts) != bool(self.expert_dim):
            raise ValueError("experts and expert_dim go together; give both or neither")
        if self.expert_dim >= self.dim:
            raise ValueError(f"an expert_dim of {self.expert_dim} leaves nothing of dim {self.dim} that experts share")
        if self.expert >= max(1, self.experts):
            raise ValueError(f"there is no expert {self.expert} among {self.experts}; the first is 0")
        return self

    @property
    def heatmap_size(self) -> tuple[int, int]:
        """Height and width of a heatmap."""
        return ENLARGED * self.grid[0], ENLARGED * self.grid[1]

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        (rows, columns), patch = self.image_size, "×".join(map(str, dict.fromkeys(self.patch_size)))
        parts = [
            f"dim {self.dim}, depth {self.depth}, heads {self.heads}, patch {patch}, images {rows}×{columns}×{self.channels}",
            "class token" if self.has_class_token else "",
            f"{self.registers} registers" if self.registers else "",
            "" if self.mlp == "gelu" else self.mlp,
            f"expert {self.expert} of {self.experts}" if self.experts else "",
            f"norm epsilon {self.norm_eps:g}",
            f"{self.decoder} decoder, {self.num_classes} joints",
        ]
        return ", ".join(part for part in parts if part)


def pose_config(
    start: ViTConfig, image_size: int | tuple[int, int] | None = None, joints: int | None = None, decoder: Decoder | None = None
) -> ViTPoseConfig:
    """Return the configuration of a heatmap model with this ViT as its backbone, for images of another size.

    The class token stays, and a distillation token becomes a register. A norm on the pooled vector becomes one on all tokens.
    A narrow backbone gets a narrow decoder.

    Args:
        start: configuration of any ViT; from a ViTPose, fields that are not passed stay as they are.
        image_size: height and width of the images in pixels, or the side of a square; 256×192 by default.
        joints: number of heatmaps; 17 by default.
        decoder: kind of decoder; classic by default.

    Raises:
        ConfigError: the backbone does not support images of this size.
    """
    overrides = {"image_size": image_size, "num_classes": joints, "decoder": decoder}
    given = {name: value for name, value in overrides.items() if value is not None}
    if isinstance(start, ViTPoseConfig):
        return start.changed(**given)
    decoder_dim = DECODER_DIM // 2 if start.dim <= NARROW else DECODER_DIM
    fields = {"image_size": (256, 192), "num_classes": 17, "decoder": "classic", "decoder_dim": decoder_dim, **given}
    kept = {name: value for name, value in start.model_dump().items() if name not in (*WITHOUT_MEANING, "pool")}
    return ViTPoseConfig.read(
        {
            **kept,
            **fields,
            "class_token": start.has_class_token,
            "registers": start.registers + start.distillation_token,
            "final_norm": "none" if start.final_norm == "none" else "tokens",
        },
        where="model",
    )


_PAPER = {"patch_size": 16, "patch_padding": 2, "shared_position": True}
_SIZES = {"Ti": SIZES["Ti"], "S": {**SIZES["S"], "heads": 12}, "B": SIZES["B"], "L": SIZES["L"], "H": SIZES["H"]}

PRESETS: dict[str, dict[str, Any]] = {f"ViTPose-{size}": {**fields, **_PAPER} for size, fields in _SIZES.items()}
"""The sizes of table 1, and a smaller one."""
PRESETS |= {f"{name}-simple": {**fields, "decoder": "simple"} for name, fields in PRESETS.items()}
PRESETS |= {
    f"ViTPose+-{size}": {**_SIZES[size], **_PAPER, "experts": 6, "expert_dim": share}
    for size, share in (("S", 96), ("B", 192), ("L", 256), ("H", 320))
}
"""ViTPose+, whose experts are for COCO, AI Challenger, MPII, AP-10K, APT-36K and COCO-WholeBody, in this order."""
