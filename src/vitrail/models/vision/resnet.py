"""Residual networks: ResNet (He et al. 2016, https://arxiv.org/abs/1512.03385) and BiT (Kolesnikov et al. 2020,
https://arxiv.org/abs/1912.11370)."""

import math
from collections.abc import Set
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.errors import ConfigError
from vitrail.models.base import AnySizeModel
from vitrail.models.configs.resnet import ResNetConfig


class ResNet(AnySizeModel):
    """A residual network: images (B, C, H, W) of any size to logits (B, classes), without classes to the mean vector (B, D)."""

    config: ResNetConfig
    first_filters = "features.root.0.weight"

    def __init__(self, config: ResNetConfig):
        super().__init__()
        self.config = c = config
        self.features = parts.ResNetPyramid(
            c.channels, c.depths, width=c.width, root=c.root, block=c.block,
            kind="bit" if c.block == "pre-activation" else "resnet",
        )  # fmt: skip
        self.add_head(self.features.channels)
        self.initialize()

    def initialize(self) -> None:
        """Sample new weights: He's normal for convolutions, a deviation of 0.01 for the head (Goyal et al. 2017, 1706.02677)."""
        self.apply(_initialize)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(parts.resnet_stride(self.config.root, stages) for stages in range(1, len(self.config.depths) + 1))

    def layers(self) -> list[nn.Module]:
        return [block for stage in self.features.stages for block in stage.children()]

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        self.require_images(images)
        images = images.contiguous(memory_format=torch.channels_last)  # the fastest layout of convolutions, on CPU and GPU
        return self.features(images)

    def vectors(self, images: Tensor) -> Tensor:
        return self.feature_maps(images)[-1].mean(dim=(2, 3))  # (B, D)

    def at_any_size(self, *, graph: bool = False) -> nn.Module:
        """Return the model itself; a ``graph`` takes sizes that are multiples of `graph_multiple`."""
        if graph and min(self.config.image_size) < (least := 2 * self.features.stride):
            raise ConfigError(
                f"a graph for images of any size needs images of at least {least} pixels, and the model's are smaller",
                where="--image-size",
                hint="export one graph for each size: --image-size 48",
            )
        return self

    @property
    def graph_multiple(self) -> tuple[int, int]:
        return self.features.stride, self.features.stride  # torch specialises on a feature map of one pixel per side

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        differ = super().may_differ(source, target, keep_head=keep_head)
        return differ - {"channels"} if source.root == "whitened" else differ  # its number of filters depends on the channels


def _initialize(module: nn.Module) -> None:
    """Sample the weights of a convolution or linear layer; norms keep their initial values."""
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=math.sqrt(2 / module.weight[:, 0].numel()))
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
        nn.init.zeros_(module.bias)
