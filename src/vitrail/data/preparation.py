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

SPARE = 2
"""A JPEG is decoded at a smaller size if both its sides are still so many times as long as in the resized image; what that
changes is seen in the last bits of a pixel."""


class Preparation(Settings):
    """How an image becomes a tensor: decode, resize, crop the centre, scale to 0…1, normalise."""

    image_size: Size
    """Height and width the model takes."""
    channels: Literal[1, 3] = 3
    """3 for RGB, 1 for grey."""
    resize_size: Size
    """Height and width of the resized image, of which the centre of ``image_size`` is cut out."""
    fit: Literal["cover", "squash"] = "cover"
    """Keep the image's shape and just cover ``resize_size``, or squash it to exactly that."""
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
    def standard(cls, image_size: tuple[int, int], channels: int = 3, crop_ratio: float = 1.0, **fields: Any) -> Self:
        """Mean and deviation 0.5 as in the paper; ``crop_ratio`` is the share of the resized image that is kept.

        ``fields`` are others of this class, in place of their defaults.
        """
        resize = tuple(math.floor(side / crop_ratio + 1e-6) for side in image_size)  # as timm rounds
        half = (0.5,) * channels
        values = {"image_size": image_size, "channels": channels, "resize_size": resize, "mean": half, "std": half, **fields}
        return cls.read(values, where="preparation")

    def at(self, image_size: tuple[int, int]) -> Self:
        """The same preparation for images of another size: the same share of the resized image is kept."""
        if image_size == self.image_size:
            return self
        sides = zip(image_size, self.resize_size, self.image_size, strict=True)
        return self.changed(image_size=image_size, resize_size=tuple(round(new * resize / old) for new, resize, old in sides))

    def __str__(self) -> str:
        rows, columns = self.resize_size
        resize = f"shorter side to {rows}" if self.fit == "cover" and rows == columns else f"{self.fit} to {rows}×{columns}"
        numbers = (f"{name} {', '.join(f'{v:g}' for v in values)}" for name, values in (("mean", self.mean), ("std", self.std)))
        return f"{resize} ({self.resampling}), centre {self.image_size[0]}×{self.image_size[1]}, {', '.join(numbers)}"

    def decode(self, source: Source, *, share: float | None = 1.0) -> Image.Image:
        """The upright picture in the model's colours.

        ``share`` is the smallest share of its area that will be brought to the model's size: a JPEG that has far more pixels
        than that needs is decoded at a smaller size. None is for all of its pixels.
        """
        least = None if share is None else math.ceil(SPARE * max(self.resize_size) / math.sqrt(share))
        return decode(source, channels=self.channels, least=least)

    def crop(self, image: Image.Image) -> Image.Image:
        """Resize as `fit` has it, and cut out the centre.

        Both in one step: only what the crop shows is computed, so that a very oblong image costs no more than another.
        """
        height, width = self.image_size
        return image.resize((width, height), RESAMPLING[self.resampling], box=self.box(image.width, image.height))

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """What the model sees of a picture of this size: left, top, right, bottom in the picture's own pixels."""
        rows, columns = self.resize_size
        if self.fit == "cover":
            scale = max(rows / height, columns / width)
            rows, columns = max(rows, round(height * scale)), max(columns, round(width * scale))
        left, top = (columns - self.image_size[1]) // 2, (rows - self.image_size[0]) // 2
        x, y = width / columns, height / rows  # source pixels per resized pixel
        return left * x, top * y, min((left + self.image_size[1]) * x, width), min((top + self.image_size[0]) * y, height)

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
        shortest = self.fit == "cover" and rows == columns  # theirs knows how to cover a square, and squashes to anything else
        return {
            "image_processor_type": "CLIPImageProcessor" if shortest else "ViTImageProcessor",
            "do_convert_rgb": self.channels == 3,
            "do_resize": True,
            "size": {"shortest_edge": rows} if shortest else {"height": rows, "width": columns},
            "fit": self.fit,
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
    def from_hugging_face(cls, values: Mapping[str, Any], *, otherwise: Self | None = None, where: object = None) -> Self:
        """Read what `to_hugging_face` or transformers wrote.

        What it leaves out is taken from ``otherwise``; without that, it must say everything.
        """
        rest = {} if otherwise is None else otherwise.to_hugging_face()
        try:
            values = {**{k: rest[k] for k in ("resample", "image_mean", "image_std") if k in rest}, **values}
            if not values.get("do_rescale", True) or not values.get("do_resize", True):
                raise ValueError("images that are not resized or not rescaled are not known here")
            kind = str(values.get("image_processor_type", values.get("feature_extractor_type", "")))
            resize, shortest = _side(values["size"], shortest="CLIP" in kind)
            cropped = values.get("do_center_crop", "crop_size" in values)
            crop = _side(values["crop_size"], shortest=False)[0] if cropped else resize
            mean, std = values["image_mean"], values["image_std"]
            if not values.get("do_normalize", True):
                mean, std = [0.0] * len(mean), [1.0] * len(std)
            scale = 255 * values.get("rescale_factor", 1 / 255)
            if not math.isclose(scale, 1, rel_tol=1e-5):
                mean, std = [m / scale for m in mean], [s / scale for s in std]
            names = {int(number): name for name, number in RESAMPLING.items()}
            return cls.read(
                {
                    "image_size": crop,
                    "channels": len(mean),
                    "resize_size": resize,
                    "fit": values.get("fit", "cover" if shortest else "squash"),
                    "resampling": names[values["resample"]],
                    "mean": mean,
                    "std": std,
                }
            )
        except (KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
            raise ModelFileError(
                f"the description of the preprocessing is incomplete or damaged: {error}",
                where=where,
                hint="write the model folder again",
            ) from None


def _side(size: Any, *, shortest: bool) -> tuple[tuple[Any, Any], bool]:
    """Height and width, and whether they are the least of an image that keeps its shape; a number alone is of older folders."""
    if isinstance(size, int):
        return (size, size), shortest
    if "shortest_edge" in size:
        return (size["shortest_edge"], size["shortest_edge"]), True
    return (size["height"], size["width"]), False


def to_pixels(image: Image.Image) -> np.ndarray:
    """A picture as uint8 (C, H, W)."""
    array = np.array(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))
