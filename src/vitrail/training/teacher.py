"""A trained model whose answers another one learns from."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.sources import ImageData, match_classes
from vitrail.errors import ConfigError
from vitrail.weights.folder import TrainedModel

LUMINANCE = (0.299, 0.587, 0.114)
"""Red, green and blue in grey, as Pillow has it (ITU-R BT.601)."""


class Teacher:
    """What a trained model says of the images that its student sees, whatever its size, channels and order of classes.

    Args:
        trained: any model of the library; it is never changed.
        data: what the student learns. Its classes are the teacher's labels, by name and in any order.
        device: where to compute.

    Raises:
        DataError: a class that the teacher does not know.
        ConfigError: images with several labels, which there is no distillation for.
    """

    def __init__(self, trained: TrainedModel, data: ImageData, device: torch.device):
        if data.multi_label or trained.multi_label:
            whose = "the images have" if data.multi_label else "the teacher gives"
            hint = "leave the teacher out, or take data and a teacher with one label an image"
            raise ConfigError(f"{whose} several labels each, and distillation is for one", where="--teacher", hint=hint)
        self.index = match_classes(data.classes, trained.labels, where="--teacher")
        self.preparation = trained.preparation
        self.model = trained.model.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """A student's pixels, uint8 (B, C, H, W), to logits (B, classes) in the order of the data's classes."""
        height, width = self.preparation.image_size
        images = _in_colours(pixels, self.preparation.channels)
        if images.shape[2:] != (height, width):
            images = F.interpolate(images.float(), (height, width), mode="bilinear", antialias=True)
        return self.model(self.preparation.normalize(images))[:, self.index]


def _in_colours(pixels: Tensor, channels: int) -> Tensor:
    """Grey to red, green and blue, or the other way round: (B, C, H, W) to (B, channels, H, W)."""
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    return (pixels * torch.tensor(LUMINANCE, device=pixels.device).view(3, 1, 1)).sum(dim=1, keepdim=True)
