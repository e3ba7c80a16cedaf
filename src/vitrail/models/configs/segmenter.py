"""Configuration of a segmenter (a backbone, four feature maps and a decoder), and the names of its sizes."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeGuard

from pydantic import Field, field_serializer, model_validator

from vitrail.checks import require_divisible
from vitrail.errors import ConfigError, unknown
from vitrail.models.configs import cvt, pvt, pvt_v2, resnet, swin, t2t, tnt, vit_names
from vitrail.models.configs.base import ImageConfig, ModelConfig, Positive, Probability, Ratio, Width
from vitrail.models.configs.captioner import encoder_config
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vit_names import SIZES

BACKBONES: dict[str, tuple[type[ImageConfig], Callable[[str], Mapping[str, Any] | None]]] = {
    "ViT": (ViTConfig, vit_names.preset_of),
    "Swin": (swin.SwinConfig, swin.preset_of),
    "PVT": (pvt.PVTConfig, pvt.preset_of),
    "PVTv2": (pvt_v2.PVTv2Config, pvt_v2.preset_of),
    "CvT": (cvt.CvTConfig, cvt.preset_of),
    "TNT": (tnt.TNTConfig, tnt.preset_of),
    "T2T": (t2t.T2TConfig, t2t.preset_of),
    "ResNet": (resnet.ResNetConfig, resnet.preset_of),
}
"""Architectures that a segmenter may have as its backbone, with their configurations and names."""
PATCHED = ("ViT", "TNT", "T2T")
"""Backbones with one feature map; the others have one for each stage."""
Maps = Literal["adapter", "pyramid", "stages", "last"]
Head = Literal["upernet", "mlp", "linear"]


class SegmenterConfig(ImageConfig):
    """Configuration of a model that gives every pixel a class. Images of other sizes are padded to what the backbone takes."""

    num_classes: Annotated[int, Field(ge=1, le=2**16)] = 150
    """Number of classes of a pixel."""
    backbone: ImageConfig = ViTConfig(num_classes=0)
    """The model whose feature maps are read, with its ``architecture``. Its ``image_size`` is the size of its positions, which
    are resized to each image."""
    maps: Maps = "adapter"
    """Feature maps that the decoder reads. adapter: ViT-Adapter's, for a ViT; pyramid: ViTDet's, from the last map of a ViT, TNT
    or T2T; stages: those of the stages of any other backbone; last: the last map alone. All but the last have the strides 4, 8,
    16 and 32."""
    tokens: Literal["keep", "drop"] = "keep"
    """Class token and registers of a ViT in its blocks. The authors of ViT-Adapter drop them, which changes the patches of a ViT
    that was trained with them."""
    head: Head = "upernet"
    """Decoder of the maps. upernet: pyramid pooling and a path from coarse to fine; mlp: a linear layer for each map, as in
    SegFormer; linear: none, the classes are read from the concatenated maps."""
    head_dim: Width = 512
    """Channels of the decoder."""
    head_dropout: Probability = 0.1
    """Dropout of the decoder's channels before the classes."""
    auxiliary: bool = True
    """A second head (FCN) on the map of stride 16, for the loss alone."""
    auxiliary_dim: Width = 256
    """Channels of the second head."""
    norm: Literal["batch", "group"] = "batch"
    """Norm of adapter, pyramid and heads: BatchNorm, or GroupNorm, which does not depend on the batch."""
    pyramid_dim: Width = 256
    """Channels of ViTDet's pyramid."""
    deformable_heads: Positive = 6
    """Heads of the adapter's deformable attention."""
    deformable_ratio: Ratio = 1.0
    """Width of the values of the adapter's deformable attention, divided by the width of a token."""

    answer: ClassVar[Literal["vector", "heatmaps", "text", "noise", "masks"]] = "masks"
    training_only: ClassVar[frozenset[str]] = frozenset(("head_dropout",))
    parts: ClassVar[frozenset[str]] = frozenset({"backbone"})

    @classmethod
    def taken_from(cls, start: ModelConfig) -> dict[str, Any]:
        """Return the backbone, if ``start`` may be one, with the size and channels of its images."""
        if not is_backbone(start):
            return {}
        return {"backbone": described(start), "image_size": start.image_size, "channels": start.channels}

    @model_validator(mode="before")
    @classmethod
    def _complete_backbone(cls, values: Any) -> Any:
        """Read the backbone by its architecture, without a head, and for the channels of the images."""
        if not isinstance(values, dict):
            return values
        backbone = values.get("backbone", {})
        fields = described(backbone) if isinstance(backbone, ImageConfig) else backbone
        if not isinstance(fields, dict):
            return values
        if (name := fields.get("architecture", "ViT")) not in BACKBONES:
            raise unknown("backbone", str(name), list(BACKBONES), where="model.backbone.architecture")
        channels = values.get("channels", fields.get("channels", 3))
        own = {field: value for field, value in fields.items() if field != "architecture"} | {"channels": channels}
        read = BACKBONES[name][0].read({**own, "num_classes": 0}, where="model.backbone")
        return {**values, "channels": channels, "backbone": headless(read)}

    @field_serializer("backbone", mode="plain")
    def _with_architecture(self, backbone: ImageConfig) -> dict[str, Any]:
        return described(backbone)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        kind = architecture_of(self.backbone)
        possible = {"adapter": ["ViT"], "pyramid": PATCHED, "stages": [name for name in BACKBONES if name not in PATCHED]}
        if kind not in possible.get(self.maps, BACKBONES):
            usual = "pyramid" if kind in PATCHED else "stages"
            what = f"the maps {self.maps!r} cannot be made of a {kind}"
            raise ConfigError(what, where="model.maps", hint=f"set maps to {usual!r}")
        if self.head == "upernet" and self.maps == "last":
            what = "the head 'upernet' needs maps of several strides, and the maps 'last' are one"
            raise ConfigError(what, where="model.head", hint="set head to 'linear' or 'mlp'")
        if self.maps == "adapter":
            width = int(self.backbone.dim * self.deformable_ratio)  # type: ignore[attr-defined]
            require_divisible("width of the values", width, "deformable_heads", self.deformable_heads)
        return self

    @property
    def multiple(self) -> tuple[int, int]:
        """Numbers of pixels that the padded height and width are multiples of: a patch, or 32 for a backbone of stages."""
        patch = getattr(self.backbone, "patch_size", 32)
        return patch if isinstance(patch, tuple) else (32, 32)

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        (rows, columns), kind = self.image_size, architecture_of(self.backbone)
        maps = {"adapter": "ViT-Adapter", "pyramid": "simple pyramid", "stages": "maps of the stages", "last": "last map"}
        head = self.head if self.head == "linear" else f"{self.head} {self.head_dim} wide"
        second = ", auxiliary head" if self.auxiliary else ""
        own = f"images {rows}×{columns}×{self.channels}, {maps[self.maps]}, {head}{second}, {self.num_classes} classes"
        return f"{own}; {kind}: {self.backbone.summary}"


def architecture_of(backbone: ModelConfig) -> str:
    """Return the name of a backbone's architecture."""
    return next(name for name, (kind, _) in BACKBONES.items() if kind is type(backbone))


def is_backbone(config: ModelConfig) -> TypeGuard[ImageConfig]:
    """Return whether a segmenter may have a model of this configuration as its backbone."""
    return any(kind is type(config) for kind, _ in BACKBONES.values())


def headless(backbone: ImageConfig) -> ImageConfig:
    """Return a backbone without what only a classifier reads."""
    return encoder_config(backbone) if isinstance(backbone, ViTConfig) else backbone


def described(backbone: ImageConfig) -> dict[str, Any]:
    """Return the fields of a backbone with its ``architecture``."""
    return {"architecture": architecture_of(backbone), **backbone.model_dump()}


def segmenter_config(
    start: ImageConfig,
    image_size: int | tuple[int, int] | None = None,
    classes: int | None = None,
    maps: Maps | None = None,
    head: Head | None = None,
) -> SegmenterConfig:
    """Return the configuration of a segmenter with this model as its backbone.

    Class token and registers stay; a head for classes of whole images is dropped.

    Args:
        start: configuration of the backbone; from a segmenter, fields that are not passed stay as they are.
        image_size: height and width of the images in pixels, or the side of a square; as ``start`` by default.
        classes: number of classes; 150 by default.
        maps: feature maps that the decoder reads; the adapter's for a ViT by default, else a pyramid or the stages.
        head: the decoder; by default UPerNet, or linear for the last map.

    Raises:
        ConfigError: the model cannot be a backbone, or has no such maps.
    """
    overrides = {"image_size": image_size, "num_classes": classes, "maps": maps, "head": head}
    given = {name: value for name, value in overrides.items() if value is not None}
    if isinstance(start, SegmenterConfig):
        return start.changed(**given)
    if not is_backbone(start):
        what = f"a {type(start).__name__.removesuffix('Config')} cannot be the backbone of a segmenter"
        raise ConfigError(what, where="--from", hint=f"start from one of {', '.join(BACKBONES)}")
    kind = architecture_of(start)
    usual = maps or ("adapter" if kind == "ViT" else "pyramid" if kind in PATCHED else "stages")
    fields: dict[str, Any] = {**SegmenterConfig.taken_from(start), "maps": usual}
    fields |= _head(head or ("linear" if usual == "last" else "upernet"))
    if isinstance(start, ViTConfig) and usual == "adapter":
        fields |= deformable(start)
    return SegmenterConfig.read({**fields, **given}, where="model")


def deformable(c: ViTConfig) -> dict[str, Any]:
    """Return the fields of the deformable attention beside a ViT: the authors' for its width, heads 32 to 64 wide."""
    narrow = c.dim <= SIZES["S"]["dim"]
    heads = SegmenterConfig.model_fields["deformable_heads"].default
    fits = narrow and c.dim % heads == 0
    ratio = 1.0 if narrow or c.dim // 2 % c.heads else 0.5
    return {"deformable_heads": heads if fits else c.heads, "deformable_ratio": ratio}


def _adapter(size: str, image_size: int = 512, positions: int = 224) -> dict[str, Any]:
    """Return the fields of a published ViT-Adapter; ``positions`` is the image size that the ViT was trained with."""
    fields = {**SIZES[size], "patch_size": 16, "image_size": positions, "class_token": True, "layer_scale": 1.0}
    own = {"image_size": image_size, "tokens": "drop", "backbone": {"architecture": "ViT", **fields}}
    return {**own, **deformable(ViTConfig.read(SIZES[size]))}


def _head(head: Head) -> dict[str, Any]:
    """Return the fields of a decoder as its authors use it."""
    return {"head": head, **({} if head == "upernet" else {"head_dim": 256, "auxiliary": False})}


HEADS: dict[str, Head] = {"UPerNet": "upernet", "MLP": "mlp", "Linear": "linear"}
"""First parts of the names of segmenters; a backbone's name follows: ``UPerNet-Swin-T``."""


def preset_of(name: str) -> Mapping[str, Any] | None:
    """Return the fields of a listed name, or of a head and a backbone's name; None for an unknown name."""
    if name in PRESETS:
        return PRESETS[name]
    first, _, rest = name.partition("-")
    for kind, (config, presets) in BACKBONES.items() if first in HEADS else ():
        if (fields := presets(rest)) is not None:
            return _around(config.read({**fields}, where=f"{kind} {rest}"), HEADS[first])
    return None


def _around(start: ImageConfig, head: Head) -> dict[str, Any]:
    """Return the fields of a segmenter with this backbone, for images of 512 pixels."""
    maps: Maps | None = "last" if head == "linear" and isinstance(start, ViTConfig) else None
    return segmenter_config(start, 512, maps=maps, head=head).model_dump()


PRESETS: dict[str, Mapping[str, Any]] = {
    "ViT-Adapter-Ti": _adapter("Ti"), "ViT-Adapter-S": _adapter("S"), "ViT-Adapter-B": _adapter("B"),
    "ViT-Adapter-L": _adapter("L", 640, 384),
}  # fmt: skip
"""The segmenters of ViT-Adapter's table 4: UPerNet, an auxiliary head, and the 150 classes of ADE20K."""
PRESETS |= {name: preset_of(name) or {} for name in ("UPerNet-Swin-T", "UPerNet-Swin-B", "MLP-PVTv2-b0", "Linear-ViT-Ti/16")}
