"""The one preparation of images: what training, evaluation, prediction and the model folder share."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from vitrail.data.decode import Source, decode
from vitrail.errors import ConfigError, ModelFileError
from vitrail.settings import Settings

Side = Annotated[int, Field(gt=0, le=16_384)]
Size = tuple[Side, Side]
RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "lanczos": Image.Resampling.LANCZOS,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


class Preparation(Settings):
    """How an image becomes a tensor: decode, resize so that it covers, crop the centre, scale to 0…1, normalise."""

    image_size: Size
    """Height and width the model takes."""
    channels: Literal[1, 3] = 3
    """3 for RGB, 1 for grey."""
    resize_size: Size
    """Height and width the resized image covers before the centre of ``image_size`` is cut out."""
    resampling: Literal["nearest", "lanczos", "bilinear", "bicubic"] = "bilinear"
    """Interpolation of the resize, with antialiasing."""
    mean: tuple[Annotated[float, Field(ge=-1e3, le=1e3)], ...]
    """Per channel, subtracted from values of 0…1."""
    std: tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...]
    """Per channel, divided by."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(f"{len(self.mean)} means and {len(self.std)} deviations for {self.channels} channels")
        if any(crop > resize for crop, resize in zip(self.image_size, self.resize_size, strict=True)):
            raise ValueError(f"the crop {self.image_size} is larger than the resized image {self.resize_size}")
        return self

    @classmethod
    def standard(cls, image_size: tuple[int, int], channels: int = 3, crop_ratio: float = 1.0) -> Self:
        """Mean and deviation 0.5 as in the paper; ``crop_ratio`` is the share of the resized image that is kept."""
        resize = (round(image_size[0] / crop_ratio), round(image_size[1] / crop_ratio))
        half = (0.5,) * channels
        return cls.read(
            {"image_size": image_size, "channels": channels, "resize_size": resize, "mean": half, "std": half},
            where="preparation",
        )

    def decode(self, source: Source) -> Image.Image:
        """The upright picture in the model's colours."""
        return decode(source, channels=self.channels)

    def crop(self, image: Image.Image) -> Image.Image:
        """Resize, keeping the shape, until ``resize_size`` is just covered, and cut out the centre.

        Both in one step: only what the crop shows is computed, so that a very oblong image costs no more than another.
        """
        height, width = self.image_size
        scale = max(self.resize_size[0] / image.height, self.resize_size[1] / image.width)
        rows = max(self.resize_size[0], round(image.height * scale))
        columns = max(self.resize_size[1], round(image.width * scale))
        left, top = (columns - width) // 2, (rows - height) // 2
        x, y = image.width / columns, image.height / rows  # source pixels per resized pixel
        right, bottom = min((left + width) * x, image.width), min((top + height) * y, image.height)
        return image.resize((width, height), RESAMPLING[self.resampling], box=(left * x, top * y, right, bottom))

    def pixels(self, source: Source) -> np.ndarray:
        """Decode, resize and crop: uint8 (C, H, W)."""
        return to_pixels(self.crop(self.decode(source)))

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 (B, C, H, W) to float32: ``(x / 255 - mean) / std``."""
        mean, std = (torch.tensor(v, device=pixels.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return pixels.float().div_(255).sub_(mean).div_(std)

    def __call__(self, source: Source) -> Tensor:
        """One image, ready for a model: float32 (1, C, H, W)."""
        return self.normalize(torch.from_numpy(self.pixels(source))[None])

    def to_hugging_face(self) -> dict[str, Any]:
        """As ``preprocessor_config.json`` in the keys of transformers' image processors."""
        rows, columns = self.resize_size
        square = rows == columns  # theirs knows how to cover a square, and squashes to anything else
        return {
            "image_processor_type": "CLIPImageProcessor" if square else "ViTImageProcessor",
            "do_convert_rgb": self.channels == 3,
            "do_resize": True,
            "size": {"shortest_edge": rows} if square else {"height": rows, "width": columns},
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
            if "shortest_edge" in resize:
                resize = dict.fromkeys(("height", "width"), resize["shortest_edge"])
            expected = {"do_resize": True, "do_center_crop": True, "do_rescale": True, "do_normalize": True}
            other = [k for k, v in expected.items() if values.get(k, v) != v]
            if other or not math.isclose(values.get("rescale_factor", 1 / 255), 1 / 255):
                raise ValueError(f"{', '.join(other) or 'rescale_factor'} is not as Vitrail prepares images")
            names = {int(number): name for name, number in RESAMPLING.items()}
            return cls.read(
                {
                    "image_size": (crop["height"], crop["width"]),
                    "channels": len(values["image_mean"]),
                    "resize_size": (resize["height"], resize["width"]),
                    "resampling": names[values["resample"]],
                    "mean": values["image_mean"],
                    "std": values["image_std"],
                }
            )
        except (KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
            raise ModelFileError(
                f"the description of the preprocessing is incomplete or damaged: {error}",
                where=where,
                hint="write the model folder again",
            ) from None


def to_pixels(image: Image.Image) -> np.ndarray:
    """A picture as uint8 (C, H, W)."""
    array = np.array(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))
