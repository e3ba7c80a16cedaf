"""Decoders from patch features to a heatmap per joint, with four times the rows and columns."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from vitrail.parts.normalization import BatchNorm


class ClassicHeatmapDecoder(nn.Module):
    """Two transposed convolutions, each doubling both sides, and a 1×1 convolution: (B, D, H, W) to (B, joints, 4H, 4W).

    Equation (3) of ViTPose (Xu et al. 2022, https://arxiv.org/abs/2204.12484), after Xiao et al. 2018
    (https://arxiv.org/abs/1804.06208).

    Args:
        dim: channels D of the features.
        joints: number of heatmaps.
        width: channels between the convolutions.
    """

    def __init__(self, dim: int, joints: int, *, width: int = 256):
        super().__init__()
        self.enlarge = nn.Sequential(_doubled(dim, width), _doubled(width, width))
        self.heatmaps = nn.Conv2d(width, joints, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.heatmaps(self.enlarge(x))


def _doubled(channels: int, width: int) -> nn.Sequential:
    """Build convolution, BatchNorm and ReLU: (B, channels, H, W) to (B, width, 2H, 2W)."""
    convolution = nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1, bias=False)
    return nn.Sequential(OrderedDict(convolution=convolution, norm=BatchNorm(width), relu=nn.ReLU()))


class SimpleHeatmapDecoder(nn.Module):
    """``Conv3×3(Bilinear(ReLU(x)))``, four times as many rows and columns: (B, D, H, W) to (B, joints, 4H, 4W).

    Equation (4) of ViTPose (Xu et al. 2022, https://arxiv.org/abs/2204.12484).
    """

    def __init__(self, dim: int, joints: int):
        super().__init__()
        self.enlarge = nn.Sequential(nn.ReLU(), nn.Upsample(scale_factor=4, mode="bilinear"))
        self.heatmaps = nn.Conv2d(dim, joints, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.heatmaps(self.enlarge(x))


def pixels_per_place(image: tuple[int, int], heatmap: tuple[int, int]) -> Tensor:
    """Return the image pixels between two neighbouring heatmap cells, (x, y): (2,). Both sizes are (height, width)."""
    return torch.tensor([(image[1] - 1) / (heatmap[1] - 1), (image[0] - 1) / (heatmap[0] - 1)], dtype=torch.float64)
