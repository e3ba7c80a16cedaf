"""Segmenters: a class for every pixel, by a decoder of a backbone's feature maps."""

import copy
import math
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail import parts
from vitrail.errors import ConfigError
from vitrail.models.any_size import AnySizeGraph
from vitrail.models.base import ImageModel, Model, Stride, on_grid
from vitrail.models.configs.captioner import FOR_A_HEAD
from vitrail.models.configs.segmenter import SegmenterConfig, architecture_of, is_backbone
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.registry import build, class_of
from vitrail.models.signature import BATCH, Shape
from vitrail.models.vision.vit import ViT, of_each_block
from vitrail.models.vision.vit_adapter import ViTAdapter
from vitrail.parts.vision.token_reduction import keep_attention

TOKENS = ("class_token", "distillation_token", "registers")
GRAPHS_OF_ANY_SIZE = {"ViT", "ResNet", "PVTv2", "CvT"}
"""Backbones that can be exported for images of any size; those of the others have windows or positions of one size."""
UNNORMED = {"Swin", "PVT", "CvT"}
"""Backbones whose stages end without a norm, and whose last norm only a classifier reads."""


class Segmenter(ImageModel):
    """A segmenter: images (B, C, H, W) of any size to logits (B, classes, ⌈H / s⌉, ⌈W / s⌉) at the decoder's stride s.

    The stride is 4, or for ``maps: last`` the backbone's. Images are padded with zeros at the right and the bottom to what the
    backbone takes.
    """

    config: SegmenterConfig
    fresh = frozenset(("neck", "decoder", "auxiliary"))
    full_size = False
    """True if `forward` gives logits at the size of the images; see `at_full_size`."""
    any_size_graph = False
    """True if the sides of the images are symbols of a graph; see `at_any_size`."""

    def __init__(self, config: SegmenterConfig):
        super().__init__()
        self.config = c = config
        self.backbone = _backbone(c)
        self.neck, widths = _neck(c, self.backbone)
        self.decoder = _decoder(c, widths)
        self.vector_dim = sum(widths) if c.head == "linear" else c.head_dim
        self.dropout = nn.Dropout2d(c.head_dropout)
        self.classifier = nn.Conv2d(self.vector_dim, c.num_classes, 1)
        read = widths[-2 if len(widths) > 1 else -1]
        self.auxiliary = parts.conv_norm(read, c.auxiliary_dim, norm=c.norm) if c.auxiliary else None
        self.auxiliary_classifier = nn.Conv2d(c.auxiliary_dim, c.num_classes, 1) if c.auxiliary else None
        self.initialize()

    def initialize(self) -> None:
        """Sample new weights of all but the backbone: He's normal for convolutions, 0.02 for linear layers, 0.01 for heads."""
        own = [module for part in self.readout().values() for module in part.modules()]
        for module in own:
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for module in own:
            if isinstance(module, parts.DeformableAttention):
                module.initialize()
        for head in self.heads().values():
            nn.init.normal_(head.weight, std=0.01)

    def layers(self) -> list[nn.Module]:
        return self.backbone.layers()

    def heads(self) -> dict[str, Any]:
        return {name: head for name in ("classifier", "auxiliary_classifier") if (head := getattr(self, name)) is not None}

    def readout(self) -> dict[str, nn.Module]:
        """Return all but the backbone, the adapter included, since it is new beside a trained ViT."""
        return {name: part for name, part in self.named_children() if name != "backbone"}

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """Return the maps that the decoder reads, of the padded images: (B, D, rows, columns) each; see `strides`."""
        self.require_channels(images)
        height, width = images.shape[2:]
        (down, across), maps = self.config.multiple, self.config.maps
        if height % down or width % across:
            images = F.pad(images, (0, -width % across, 0, -height % down))
        if maps == "adapter":
            z, blocks = self._embedded(images)
            grid = self._grid(images)
            return self.neck(images, z, blocks, prefix=z.shape[1] - grid[0] * grid[1], grid=grid)
        levels = [self._patch_map(images)] if isinstance(self.backbone, ViT) else self.backbone.feature_maps(images)
        if maps == "pyramid":
            return self.neck(levels[-1], parts.map_sizes(images.shape[2], images.shape[3]))
        return self.neck(levels if maps == "stages" else levels[-1:])

    def _grid(self, images: Tensor) -> parts.Grid:
        backbone: Any = self.backbone.config
        return backbone.grid_of(images.shape[2], images.shape[3])

    def _embedded(self, images: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the tokens that a ViT's first block takes, and its blocks with their options."""
        vit: Any = self.backbone
        embed = AnySizeGraph(vit).embed if self._is_resized_in_graph(images) else partial(vit.embed, any_size=True)
        z, attention = embed(images)
        if (prefix := vit.config.prefix) and self.config.tokens == "drop":
            if attention:
                patches = torch.arange(prefix, z.shape[1], device=z.device)
                attention = keep_attention(attention, patches.expand(z.shape[0], -1))
            z = z[:, prefix:]
        options = of_each_block(attention, len(vit.blocks))
        return z, [partial(block, **own) for block, own in zip(vit.blocks, options, strict=True)]

    def _is_resized_in_graph(self, images: Tensor) -> bool:
        """Return whether a graph resizes a ViT's positions: by matrix products, since no engine has their interpolation."""
        vit: Any = self.backbone
        return torch.compiler.is_exporting() and (self.any_size_graph or vit.config.grid != self._grid(images))

    def _patch_map(self, images: Tensor) -> Tensor:
        """Return a ViT's patches after its last norm: (B, D, rows, columns)."""
        z, blocks = self._embedded(images)
        for block in blocks:
            z = block(z)
        rows, columns = self._grid(images)
        vit: Any = self.backbone
        return on_grid(vit.norm(z)[:, -rows * columns :], (rows, columns))

    @property
    def strides(self) -> tuple[Stride, ...]:
        return self.backbone.strides[-1:] if self.config.maps == "last" else parts.STRIDES

    @property
    def sees_by_attention(self) -> bool:
        """True if the decoder reads a plain ViT's blocks alone; an adapter also sees the image through convolutions."""
        return isinstance(self.backbone, ViT) and self.config.maps != "adapter"

    def vectors(self, images: Tensor) -> Tensor:
        """Return the mean of the decoder's map: (B, D)."""
        vectors: Tensor = self.decoder(self.feature_maps(images)).mean(dim=(2, 3))
        return vectors

    def forward(self, images: Tensor, *, separate: bool = False) -> Any:
        """Return the logits of images (B, C, H, W); ``separate`` gives a pair with the auxiliary head's, or None without one."""
        maps, (height, width) = self.feature_maps(images), images.shape[2:]
        logits = _within(self.classifier(self.dropout(self.decoder(maps))), self.strides[0], height, width)
        if not separate:
            return self.enlarged(logits, height, width) if self.full_size else logits
        if self.auxiliary is None or self.auxiliary_classifier is None:
            return logits, None
        read = -2 if len(maps) > 1 else -1
        second = self.auxiliary_classifier(self.dropout(self.auxiliary(maps[read])))
        return logits, _within(second, self.strides[read], height, width)

    def outputs(self) -> dict[str, Shape]:
        (height, width), (down, across) = self.config.image_size, (1, 1) if self.full_size else _pair(self.strides[0])
        return {"logits": Shape((BATCH, self.config.num_classes, -(-height // down), -(-width // across)))}

    def at_any_size(self, *, graph: bool = False) -> nn.Module:
        """Return the model itself; for a ``graph`` a copy that computes with symbolic sides.

        Raises:
            ConfigError: a ``graph`` is requested of a model with an adapter, a UPerNet head, or windows or positions of one size.
        """
        if not graph:
            return self
        kind, c = architecture_of(self.config.backbone), self.config
        problem = {
            c.maps == "adapter": "ViT-Adapter",
            c.head == "upernet": "UPerNet's pyramid pooling",
            kind not in GRAPHS_OF_ANY_SIZE: f"a {kind}",
        }.get(True)
        if problem is not None:
            what = f"{problem} cannot be exported for images of any size"
            raise ConfigError(what, where="--image-size", hint="export one graph for each size: --image-size 384")
        if isinstance(self.backbone, ViT):
            AnySizeGraph(self.backbone)  # refuses positions that cannot be resized in a graph
        found = copy.copy(self)
        found.any_size_graph = True
        return found

    @property
    def graph_multiple(self) -> tuple[int, int]:
        (down, across), stride = self.config.multiple, parts.STRIDES[-1]
        return math.lcm(down, stride), math.lcm(across, stride)

    def at_full_size(self) -> Self:
        """Return a copy whose logits have the size of the images: (B, classes, H, W)."""
        found = copy.copy(self)
        found.full_size = True
        return found

    def enlarged(self, logits: Tensor, height: int, width: int) -> Tensor:
        """Return `forward`'s logits at the size of the images: (B, classes, h, w) to (B, classes, height, width), bilinear.

        The last position of a side may lie partly outside of the image, and is cut off.
        """
        whole = F.interpolate(logits, scale_factor=tuple(map(float, _pair(self.strides[0]))), mode="bilinear")
        return whole[..., :height, :width]

    @classmethod
    def starts_from(cls, kind: type[Model]) -> bool:
        return issubclass(kind, ImageModel)

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        """Convert the parameters of a segmenter, or of a model with the same backbone, whose head is left out."""
        whole = isinstance(source, SegmenterConfig)
        start, ours = (source.backbone if whole else source), dict(tensors)
        if type(start) is not type(target.backbone):
            return ours  # `differences` refuses it
        inner = {name.removeprefix("backbone."): ours.pop(name) for name in tensors if name.startswith("backbone.") or not whole}
        converted = class_of(target.backbone).adapted(inner, start, target.backbone, interpolation)
        ours |= {f"backbone.{name}": tensor for name, tensor in converted.items() if not name.startswith(_unread(target))}
        if (first := "neck.prior.stem.0.convolution.weight") in ours:
            ours[first] = parts.adapt_channels(ours[first], target.channels)
        return ours

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return target.training_only | {"num_classes", "image_size", "channels", "backbone", "tokens"}

    @classmethod
    def differences(cls, source: Any, target: Any, *, keep_head: bool) -> list[str]:
        whole = isinstance(source, SegmenterConfig)
        start, backbone = (source.backbone if whole else source), target.backbone
        if type(start) is not type(backbone):
            name = architecture_of(start) if is_backbone(start) else type(start).__name__.removesuffix("Config")
            return [f"backbone {name} → {architecture_of(backbone)}"]
        own = super().differences(source, target, keep_head=keep_head) if whole else []
        allowed = class_of(backbone).may_differ(start, backbone, keep_head=False) | {"image_size"}
        if isinstance(backbone, ViTConfig):
            allowed = allowed | {*FOR_A_HEAD, "class_token"}
            if start.final_norm != "none" or not _has_last_norm(target):
                allowed = allowed | {"final_norm"}
        differ = [name for name in type(backbone).model_fields if getattr(start, name) != getattr(backbone, name)]
        inner = [name for name in differ if name not in allowed]
        return own + [f"backbone.{name} {getattr(start, name)} → {getattr(backbone, name)}" for name in inner]


def _backbone(c: SegmenterConfig) -> ImageModel:
    """Build the backbone, without parameters that no map depends on."""
    backbone = build(c.backbone)
    if not _has_last_norm(c):
        backbone.norm = nn.Identity()
    for name in TOKENS if c.tokens == "drop" else ():
        if (token := getattr(backbone, name, None)) is not None:  # embedded as zeros, and dropped before the first block
            delattr(backbone, name)
            backbone.register_buffer(name, torch.zeros(token.shape, device="cpu"), persistent=False)
    return backbone


def _has_last_norm(c: SegmenterConfig) -> bool:
    """Return whether the backbone keeps the norm after its last block, which the adapter does not read."""
    return architecture_of(c.backbone) not in UNNORMED and c.maps != "adapter" and getattr(c.backbone, "final_norm", "") != "none"


def _unread(c: SegmenterConfig) -> tuple[str, ...]:
    """Return prefixes of the parameters of a classifier that the segmenter's backbone lacks."""
    return ("pool.", "head", *(() if _has_last_norm(c) else ("norm.",)), *(TOKENS if c.tokens == "drop" else ()))


def _neck(c: SegmenterConfig, backbone: ImageModel) -> tuple[nn.Module, list[int]]:
    """Build what makes the decoder's maps from the backbone's, and return their channels."""
    own: Any = c.backbone
    if c.maps == "adapter":
        adapter = ViTAdapter(own, heads=c.deformable_heads, ratio=c.deformable_ratio, norm=c.norm)
        return adapter, [own.dim] * len(parts.STRIDES)
    if c.maps == "pyramid":
        down, across = _pair(backbone.strides[-1])
        pyramid = parts.SimplePyramid(own.dim, (down * across) ** 0.5, c.pyramid_dim, norm=c.norm)
        return pyramid, [c.pyramid_dim] * len(parts.STRIDES)
    count = len(parts.STRIDES) if c.maps == "stages" else 1
    if c.maps == "stages" and backbone.strides not in (parts.STRIDES, parts.STRIDES[:-1]):
        what = f"the backbone's maps have the strides {', '.join(map(str, backbone.strides))}"
        raise ConfigError(what, where="model.maps", hint="a decoder of stages needs 4, 8, 16 and 32; set maps to 'last'")
    stages = parts.StageMaps(_widths(own)[-count:], count, normed=architecture_of(own) in UNNORMED)
    return stages, stages.widths


def _widths(c: Any) -> tuple[int, ...]:
    """Return the channels of a backbone's feature maps."""
    return next(getattr(c, name) for name in ("widths", "dims") if hasattr(c, name)) if not hasattr(c, "depth") else (c.dim,)


def _decoder(c: SegmenterConfig, widths: Sequence[int]) -> nn.Module:
    if c.head == "linear":
        return parts.LinearDecoder(widths, norm=c.norm)
    kind = parts.UPerNetDecoder if c.head == "upernet" else parts.MLPDecoder
    return kind(widths, c.head_dim, norm=c.norm)


def _pair(stride: Stride) -> tuple[int, int]:
    return stride if isinstance(stride, tuple) else (stride, stride)


def _within(logits: Tensor, stride: Stride, height: int, width: int) -> Tensor:
    """Return the logits (B, classes, h, w) of positions within an image of this size, without its padding."""
    down, across = _pair(stride)
    return logits[..., : -(-height // down), : -(-width // across)]
