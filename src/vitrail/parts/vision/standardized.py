"""Convolutions with standardised weights (Qiao et al. 2019, https://arxiv.org/abs/1903.10520)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StandardizedConv2d(nn.Conv2d):
    """A convolution with standardised weights, without bias (Qiao et al. 2019, https://arxiv.org/abs/1903.10520).

    ``(w − mean) / sqrt(variance + 1e-8)`` over every filter, as in timm and in Google's code. The result has
    ``ceil(side / stride)`` pixels. With ``same``, the image is padded as TensorFlow does, an odd pixel at the bottom and
    right; otherwise by half the kernel on every side.
    """

    def __init__(self, channels: int, width: int, kernel: int, stride: int = 1, *, same: bool = True):
        super().__init__(channels, width, kernel, stride, bias=False)
        self.same = same and stride > 1  # for a stride of 1 both paddings are equal

    def standardized(self) -> Tensor:
        """Return the standardised filters: (width, channels, kernel, kernel)."""
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), correction=0, keepdim=True)
        return (self.weight - mean) * (variance + 1e-8).rsqrt()

    def forward(self, x: Tensor) -> Tensor:
        weight = self.standardized()
        if self.same:
            return F.conv2d(pad_same(x, self.kernel_size[0], self.stride[0]), weight, stride=self.stride)
        return F.conv2d(x, weight, stride=self.stride, padding=self.kernel_size[0] // 2)


class FixedConv2d(StandardizedConv2d):
    """A standardised convolution for inference: its filters are standardised once, and not for every image."""

    def __init__(self, own: StandardizedConv2d):
        super().__init__(own.in_channels, own.out_channels, own.kernel_size[0], own.stride[0], same=own.same)
        self.weight = nn.Parameter(own.standardized().detach(), requires_grad=False)

    def standardized(self) -> Tensor:
        return self.weight


def pad_same(x: Tensor, kernel: int, stride: int, value: float = 0.0) -> Tensor:
    """Pad (B, C, H, W) so that a window of ``kernel`` and ``stride`` gives ``ceil(side / stride)`` positions.

    An odd pixel is added at the bottom and right, as in TensorFlow and JAX.
    """
    rows, columns = (max(0, (math.ceil(side / stride) - 1) * stride + kernel - side) for side in x.shape[-2:])
    return F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2), value=value)
