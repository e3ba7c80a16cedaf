"""A convolution with its norm and ReLU, and the change of a feature map to another size."""

import math
from collections import OrderedDict
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.normalization import BatchNorm
from vitrail.parts.vision.resnet import GroupNorm

MapNorm = Literal["batch", "group"]
"""Norm of feature maps (B, C, H, W): BatchNorm, whose running statistics are averaged over processes, or GroupNorm of up to 32
groups (Wu and He 2018, https://arxiv.org/abs/1803.08494), which does not depend on the batch."""


def map_norm(channels: int, kind: MapNorm) -> nn.Module:
    """Return a norm of feature maps (B, channels, H, W)."""
    return BatchNorm(channels) if kind == "batch" else GroupNorm(math.gcd(32, channels), channels)


class StridedConv2d(nn.Conv2d):
    """torch's convolution, that also gives a single column of outputs exactly in bf16.

    If the map is not wider than the stride, oneDNN's kernels for bf16 read memory that was never written. Such a map is
    widened with zeros, and the second column is dropped.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[3] > (stride := self.stride[1]):
            return super().forward(x)
        return super().forward(F.pad(x, (0, stride)))[..., :1]


def conv_norm(channels: int, width: int, kernel: int = 3, *, stride: int = 1, norm: MapNorm = "batch") -> nn.Sequential:
    """Return a convolution without bias, a norm and ReLU: (B, channels, H, W) to (B, width, ⌈H / stride⌉, ⌈W / stride⌉)."""
    kind = StridedConv2d if stride > 1 else nn.Conv2d
    convolution = kind(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(OrderedDict(convolution=convolution, norm=map_norm(width, norm), relu=nn.ReLU()))


def resize_map(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a feature map (B, C, H, W) at another size: bilinear, or the mean of each area if the map becomes smaller."""
    if tuple(x.shape[2:]) == tuple(size):
        return x
    if x.shape[2] >= size[0] and x.shape[3] >= size[1]:
        return F.adaptive_avg_pool2d(x, size)
    return F.interpolate(x, size=size, mode="bilinear")
