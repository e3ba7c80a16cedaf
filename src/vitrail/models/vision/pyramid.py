"""Models of several stages, each on a coarser grid than the stage before."""

from collections.abc import Iterator
from itertools import accumulate
from operator import mul
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.base import AnySizeModel


class PyramidModel(AnySizeModel):
    """Base of models of several stages, for images (B, C, H, W) of any size, without conversion of weights."""

    stages: nn.ModuleList
    """Stages that map tokens (B, H, W, C) to fewer and wider ones; the input of the first is the image."""
    head: nn.Module
    first_filters = "stages.0.embedding.projection.weight"
    reads_class_token: ClassVar[bool] = False
    """True if the head reads a class token, which is added in the last stage."""

    def stage_tokens(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the tokens of every stage for images (B, C, H, W): (B, H / stride, W / stride, D)."""
        x = self.grid_of(images)
        for stage in self.stages:
            x = stage(x)
            yield x

    def grid_of(self, images: Tensor) -> Tensor:
        """Return images (B, C, H, W) with channels last, as the first stage takes them: (B, H, W, C)."""
        self.require_images(images)
        return images.permute(0, 2, 3, 1)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        return [x.permute(0, 3, 1, 2) for x in self.stage_tokens(images)]

    features = feature_maps
    """The earlier name of `feature_maps`."""

    @property
    def strides(self) -> tuple[int, ...]:
        network: Any = self
        return tuple(accumulate(network.config.strides, mul))

    def layers(self) -> list[nn.Module]:
        return [block for stage in self.stages for block in cast(parts.Stage, stage).blocks]
