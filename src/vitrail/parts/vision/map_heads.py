"""Decoders of dense prediction: feature maps of several strides to one map at the finest stride."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.vision.conv_norm import MapNorm, conv_norm, map_norm

POOLS = (1, 2, 3, 6)
"""Rows and columns of the grids that pyramid pooling averages a map to."""


class LinearDecoder(nn.Module):
    """All maps at the finest stride, concatenated and normed: (B, D_i, H_i, W_i) each to (B, ΣD_i, H_1, W_1).

    A linear layer reads the result, as on DINOv2's frozen features (Oquab et al. 2024, https://arxiv.org/abs/2304.07193,
    section 7.4).

    Args:
        widths: channels of the maps.
        norm: kind of the norm.
    """

    def __init__(self, widths: Sequence[int], *, norm: MapNorm = "batch"):
        super().__init__()
        self.norm = map_norm(sum(widths), norm)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        first, *coarser = maps
        return self.norm(torch.cat([first, *(_enlarged(level, first) for level in coarser)], dim=1))


class MLPDecoder(nn.Module):
    """SegFormer's decoder (Xie et al. 2021, https://arxiv.org/abs/2105.15203): (B, D_i, H_i, W_i) each to (B, width, H_1, W_1).

    A linear layer for each map, bilinear upsampling, concatenation, and a 1×1 convolution. The convolution is computed before
    upsampling: both are linear, so that the order does not change the result, and a coarse map has fewer positions.

    Args:
        widths: channels of the maps.
        width: channels of the result.
        norm: kind of the norm.
    """

    def __init__(self, widths: Sequence[int], width: int, *, norm: MapNorm = "batch"):
        super().__init__()
        self.projections = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in widths)
        self.fuse = nn.Conv2d(len(widths) * width, width, 1, bias=False)  # reads the coarsest map first, as the authors' does
        self.norm = map_norm(width, norm)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        weights = reversed(self.fuse.weight.chunk(len(maps), dim=1))
        layers = zip(self.projections, weights, maps, strict=True)
        total, *coarser = (F.conv2d(project(x), weight) for project, weight, x in layers)
        for level in coarser:
            total = total + _enlarged(level, total)
        return F.relu(self.norm(total))


class UPerNetDecoder(nn.Module):
    """UPerNet (Xiao et al. 2018, https://arxiv.org/abs/1807.10221): (B, D_i, H_i, W_i) each to (B, width, H_1, W_1).

    Pyramid pooling of the coarsest map, a path from coarse to fine that adds each map to the next, and a convolution of all
    levels together. The convolution of a coarse level is computed before it is enlarged; see `convolve_enlarged`.

    Args:
        widths: channels of the maps.
        width: channels of the result.
        norm: kind of the norms.
    """

    def __init__(self, widths: Sequence[int], width: int, *, norm: MapNorm = "batch"):
        super().__init__()
        *finer, last = widths
        self.pools = nn.ModuleList(conv_norm(last, width, 1, norm=norm) for _ in POOLS)
        self.bottleneck = conv_norm(last + len(POOLS) * width, width, norm=norm)
        self.laterals = nn.ModuleList(conv_norm(channels, width, 1, norm=norm) for channels in finer)
        self.outputs = nn.ModuleList(conv_norm(width, width, norm=norm) for _ in finer)
        self.fuse: Any = conv_norm(len(widths) * width, width, norm=norm)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        *finer, last = maps
        levels = [self.bottleneck(self.pooled(last))]
        for lateral, x in zip(reversed(self.laterals), reversed(finer), strict=True):
            levels.insert(0, lateral(x) + _enlarged(levels[0], x))
        first, *coarser = [convolve(level) for convolve, level in zip(self.outputs, levels, strict=False)]
        own, *weights = self.fuse.convolution.weight.chunk(len(levels), dim=1)
        total = F.conv2d(first, own, self.fuse.convolution.bias, padding=1)
        for level, weight in zip([*coarser, levels[-1]], weights, strict=True):
            total = total + convolve_enlarged(level, weight, (first.shape[2], first.shape[3]))
        return self.fuse.relu(self.fuse.norm(total))

    def pooled(self, x: Tensor) -> Tensor:
        """Return a map (B, D, H, W) followed by its means over grids of `POOLS`, projected: (B, D + pools · width, H, W)."""
        means = (_enlarged(project(F.adaptive_avg_pool2d(x, size)), x) for project, size in zip(self.pools, POOLS, strict=True))
        return torch.cat([x, *means], dim=1)


def convolve_enlarged(x: Tensor, weight: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the 3×3 convolution, padded with zeros, of a map that is enlarged bilinearly: (B, C, h, w) to (B, D, *size).

    Both are linear. The nine 1×1 convolutions are computed on the small map, and two matrix products enlarge, shift and add them.

    Args:
        x: the map before it is enlarged.
        weight: (D, C, 3, 3).
        size: rows H and columns W of the enlarged map.
    """
    taps = F.conv2d(x, weight.permute(0, 2, 3, 1).reshape(-1, x.shape[1], 1, 1))  # (B, D · 3 · 3, h, w)
    taps = taps.unflatten(1, (-1, 3, 3)).transpose(3, 4).flatten(4)  # (B, D, 3, h, 3w)
    rows, columns = (_shifted(small, large, taps) for small, large in zip(x.shape[2:], size, strict=True))
    return rows.mT @ (taps @ columns).flatten(2, 3)


def _shifted(small: int, large: int, like: Tensor) -> Tensor:
    """Return linear interpolation to ``large`` values, shifted by −1, 0 and 1, with zeros outside: (3 · small, large)."""
    weights = F.interpolate(torch.eye(small, device=like.device)[None], size=large, mode="linear")[0]
    return F.pad(weights, (1, 1)).unfold(1, large, 1).transpose(0, 1).flatten(0, 1).to(like.dtype)


def _enlarged(x: Tensor, to: Tensor) -> Tensor:
    """Return a map (B, C, h, w) with the rows and columns of another, by bilinear interpolation."""
    return F.interpolate(x, size=to.shape[2:], mode="bilinear")
