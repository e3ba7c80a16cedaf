"""Four feature maps, of strides 4, 8, 16 and 32, from those that a backbone has."""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.vision.conv_norm import MapNorm, conv_norm, map_norm, resize_map

STRIDES = (4, 8, 16, 32)
"""Pixels from one position to the next in the maps of a segmenter."""


def map_sizes(height: int, width: int) -> list[tuple[int, int]]:
    """Return rows and columns of the maps of an image, finest first."""
    return [(-(-height // stride), -(-width // stride)) for stride in STRIDES]


class SimplePyramid(nn.Module):
    """The simple feature pyramid of ViTDet (Li et al. 2022, https://arxiv.org/abs/2203.16527): one map to maps of four strides.

    From a stride of 16, two transposed convolutions lead to 4, one to 8, none to 16, and max pooling to 32; two convolutions
    follow each. The norms are those of the heads instead of LayerNorm. A map whose stride is not a power of two, as of patches of
    14 pixels, is resized to the nearest one first.

    Args:
        dim: channels of the map.
        stride: pixels from one position of the map to the next.
        width: channels of the result.
        norm: kind of the norms.
    """

    def __init__(self, dim: int, stride: float, width: int, *, norm: MapNorm = "batch"):
        super().__init__()
        self.stride = min(STRIDES, key=lambda power: abs(math.log2(stride / power)))
        self.levels = nn.ModuleList(_level(dim, self.stride / level, width, norm) for level in STRIDES)

    def forward(self, x: Tensor, sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Map (B, D, H, W) to four maps (B, width, rows, columns) of these ``sizes``."""
        x = resize_map(x, sizes[STRIDES.index(self.stride)])
        levels = zip(self.levels, sizes, strict=True)
        return [level(x)[..., :rows, :columns] for level, (rows, columns) in levels]


def _level(dim: int, scale: float, width: int, norm: MapNorm) -> nn.Sequential:
    """Return the layers to a map with ``scale`` times the rows and columns, a power of two."""
    layers: list[nn.Module] = []
    while scale > 1:
        enlarge = nn.ConvTranspose2d(dim, dim // 2, 2, stride=2)
        dim, scale = dim // 2, scale / 2
        more = {"norm": map_norm(dim, norm), "gelu": nn.GELU()} if scale > 1 else {}
        layers.append(nn.Sequential(OrderedDict(convolution=enlarge, **more)))
    if scale < 1:
        layers.append(nn.MaxPool2d(round(1 / scale), ceil_mode=True))
    return nn.Sequential(*layers, conv_norm(dim, width, 1, norm=norm), conv_norm(width, width, norm=norm))


class StageMaps(nn.Module):
    """The maps of a backbone's last stages, normed, and as many as a decoder reads: (B, D, rows, columns) each.

    If there are fewer, as of a backbone of three stages, each further map is the last one with 2×2 positions averaged.

    Args:
        widths: channels of the backbone's maps.
        count: number of maps that the decoder reads.
        normed: adds a LayerNorm to each map, for a backbone whose stages end without one.
    """

    def __init__(self, widths: Sequence[int], count: int, *, normed: bool):
        super().__init__()
        self.widths, self.count = [*widths, *[widths[-1]] * (count - len(widths))], count
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths) if normed else None

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        levels = list(maps)
        if self.norms is not None:
            levels = [norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) for norm, x in zip(self.norms, maps, strict=True)]
        while len(levels) < self.count:
            levels.append(F.avg_pool2d(levels[-1], 2, ceil_mode=True))
        return levels
