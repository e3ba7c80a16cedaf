"""The spatial prior module of ViT-Adapter (Chen et al. 2023, https://arxiv.org/abs/2205.08534)."""

from itertools import pairwise

from torch import Tensor, nn

from vitrail.parts.vision.conv_norm import MapNorm, conv_norm

WIDTH = 64
"""Channels of the stem; the next two convolutions double them."""


class SpatialPrior(nn.Module):
    """Convolutions from images (B, C, H, W) to maps (B, D, ⌈H / s⌉, ⌈W / s⌉) of the strides s = 4, 8, 16 and 32.

    They give a plain ViT what its patches lack: edges and textures at a fine resolution.

    Args:
        channels: channels C of the images.
        dim: width D.
        norm: kind of the norms.
    """

    def __init__(self, channels: int, dim: int, *, norm: MapNorm = "batch"):
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(channels, WIDTH, stride=2, norm=norm),
            conv_norm(WIDTH, WIDTH, norm=norm),
            conv_norm(WIDTH, WIDTH, norm=norm),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        widths = (WIDTH, 2 * WIDTH, 4 * WIDTH, 4 * WIDTH)
        self.coarser = nn.ModuleList(conv_norm(width, wider, stride=2, norm=norm) for width, wider in pairwise(widths))
        self.projections = nn.ModuleList(nn.Conv2d(width, dim, 1) for width in widths)

    def forward(self, images: Tensor) -> list[Tensor]:
        maps = [self.stem(images)]
        for layer in self.coarser:
            maps.append(layer(maps[-1]))
        return [projection(level) for projection, level in zip(self.projections, maps, strict=True)]
