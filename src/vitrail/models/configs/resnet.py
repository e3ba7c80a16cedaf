"""Configuration of a residual network, and the names of its sizes: ResNet and BiT."""

from typing import Annotated, Any, Literal

from pydantic import Field

from vitrail.models.configs.base import Depths, ImageConfig


class ResNetConfig(ImageConfig):
    """Configuration of a residual network."""

    depths: Depths = (3, 4, 6, 3)
    """Blocks in every stage; each stage but the first halves height and width."""
    width: Annotated[int, Field(gt=0, le=2**12)] = 64
    """Channels of the root; every stage but the first doubles them."""
    block: Literal["basic", "bottleneck", "pre-activation", "pooled"] = "bottleneck"
    """Kind of block. basic: two 3×3 convolutions; bottleneck: 1×1, 3×3 and 1×1 with four times the channels; pre-activation: a
    bottleneck as in BiT, with norms first, weight-standardised convolutions and GroupNorm; pooled: for short trainings, a 3×3
    convolution with max pooling that halves the sides, then a residual 3×3 convolution."""
    root: Literal["imagenet", "cifar", "whitened"] = "imagenet"
    """First layers. imagenet: 7×7 of stride 2 and max pooling of stride 2; cifar: 3×3 of stride 1, for small images; whitened:
    for short trainings, whitened 2×2 patches, computed before training begins, then 3×3 and max pooling of stride 2."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of every stage's feature map."""
        factor = 4 if self.block in ("bottleneck", "pre-activation") else 1
        return tuple(factor * self.width * 2**stage for stage in range(len(self.depths)))

    @property
    def family(self) -> str:
        return "BiT" if self.block == "pre-activation" else ""

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        rows, columns = self.image_size
        parts = (
            f"{self.block} blocks {'-'.join(map(str, self.depths))}",
            f"width {self.width}",
            f"images {rows}×{columns}×{self.channels}",
            "root for small images" if self.root == "cifar" else "",
            "root of whitened patches" if self.root == "whitened" else "",
            f"{self.num_classes} classes" if self.num_classes else "no head",
        )
        return ", ".join(part for part in parts if part)


STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Bottlenecks in every stage, by the number of layers of the network."""

PRESETS: dict[str, dict[str, Any]] = {
    "ResNet-18": {"depths": (2, 2, 2, 2), "block": "basic"},
    "ResNet-34": {"depths": (3, 4, 6, 3), "block": "basic"},
    **{f"ResNet-{layers}": {"depths": depths} for layers, depths in STAGES.items()},
    **{
        f"BiT-R{layers}x{factor}": {"depths": STAGES[layers], "width": 64 * factor, "block": "pre-activation"}
        for layers, factor in ((50, 1), (50, 3), (101, 1), (101, 3), (152, 2), (152, 4))
    },
}
"""The sizes of He et al. 2016 (https://arxiv.org/abs/1512.03385, table 1), with the stride on the 3×3 convolution as is usual
today, and of BiT (Kolesnikov et al. 2020, https://arxiv.org/abs/1912.11370)."""

_TIMM = {
    f"resnetv2_{name.removeprefix('BiT-R')}_bit" if name.startswith("BiT") else name.lower().replace("-", ""): fields
    for name, fields in PRESETS.items()
}
preset_of = {**PRESETS, **_TIMM}.get
"""Returns the fields of a name in Vitrail's spelling or timm's (``resnet50``, ``resnetv2_50x1_bit``); None if it is unknown."""
