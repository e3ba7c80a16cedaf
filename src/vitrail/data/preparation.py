"""The one preparation of images: what training, evaluation, prediction and the model folder share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.data.decode import decode
from vitrail.errors import ModelFileError
from vitrail.settings import Settings

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "lanczos": Image.Resampling.LANCZOS,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


class Preparation(Settings):
    """How an image becomes a tensor: decode, resize so that it covers, crop the centre, scale to 0…1, normalise."""

    image_size: tuple[int, int]
    """Height and width the model takes."""
    channels: int = 3
    """3 for RGB, 1 for grey."""
    resize_size: tuple[int, int]
    """Height and width the resized image covers before the centre of ``image_size`` is cut out."""
    resampling: Literal["nearest", "lanczos", "bilinear", "bicubic"] = "bilinear"
    """Interpolation of the resize, with antialiasing."""
    mean: tuple[float, ...]
    """Per channel, subtracted from values of 0…1."""
    std: tuple[float, ...]
    """Per channel, divided by."""

    @classmethod
    def standard(cls, image_size: tuple[int, int], channels: int = 3, crop_ratio: float = 1.0) -> Self:
        """Mean and deviation 0.5 as in the paper; ``crop_ratio`` is the share of the resized image that is kept."""
        resize = (round(image_size[0] / crop_ratio), round(image_size[1] / crop_ratio))
        half = (0.5,) * channels
        return cls(image_size=image_size, channels=channels, resize_size=resize, mean=half, std=half)

    def decode(self, source: Path | bytes | Image.Image) -> Image.Image:
        """The upright picture in the model's colours."""
        return decode(source, channels=self.channels)

    def cover(self, image: Image.Image) -> Image.Image:
        """Resize, keeping the shape, until ``resize_size`` is just covered."""
        height, width = self.resize_size
        scale = max(height / image.height, width / image.width)
        size = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
        return image if size == image.size else image.resize(size, RESAMPLING[self.resampling])

    def crop(self, image: Image.Image) -> Image.Image:
        """Resize and cut out the centre."""
        height, width = self.image_size
        image = self.cover(image)
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))

    def pixels(self, source: Path | bytes | Image.Image) -> np.ndarray:
        """Decode, resize and crop: uint8 (C, H, W)."""
        return to_pixels(self.crop(self.decode(source)))

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 (B, C, H, W) to float32: ``(x / 255 - mean) / std``."""
        mean, std = (torch.tensor(v, device=pixels.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return pixels.float().div_(255).sub_(mean).div_(std)

    def __call__(self, source: Path | bytes | Image.Image) -> Tensor:
        """One image, ready for a model: float32 (1, C, H, W)."""
        return self.normalize(torch.from_numpy(self.pixels(source))[None])

    def to_hugging_face(self) -> dict[str, Any]:
        """As ``preprocessor_config.json`` in the keys of transformers' image processors."""
        return {
            "image_processor_type": "ViTImageProcessor",
            "do_convert_rgb": self.channels == 3,
            "do_resize": True,
            "size": {"height": self.resize_size[0], "width": self.resize_size[1]},
            "resample": int(RESAMPLING[self.resampling]),
            "do_center_crop": True,
            "crop_size": {"height": self.image_size[0], "width": self.image_size[1]},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }

    @classmethod
    def from_hugging_face(cls, values: Mapping[str, Any], *, where: object = None) -> Self:
        """Read what `to_hugging_face` wrote."""
        try:
            resize, crop = values["size"], values["crop_size"]
            names = {int(number): name for name, number in RESAMPLING.items()}
            return cls(
                image_size=(crop["height"], crop["width"]),
                channels=len(values["image_mean"]),
                resize_size=(resize["height"], resize["width"]),
                resampling=names[values["resample"]],  # type: ignore[arg-type]
                mean=tuple(values["image_mean"]),
                std=tuple(values["image_std"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"the description of the preprocessing is incomplete or damaged: {error}",
                where=where,
                hint="write the model folder again",
            ) from None


def to_pixels(image: Image.Image) -> np.ndarray:
    """A picture as uint8 (C, H, W)."""
    array = np.array(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))
