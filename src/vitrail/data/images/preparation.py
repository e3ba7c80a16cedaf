"""The preparation of images, common to training, evaluation, prediction and the model folder."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from PIL import Image
from pydantic import Field, model_validator

from vitrail.data.images.decode import Source, check_head, decode_reduced
from vitrail.data.images.plan import Extent, Frame, Plan, Resize, to_picture
from vitrail.data.images.processors import read_processor
from vitrail.data.images.reduction import Box, Reduced, Whole
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.data.images.pictures import Picture

Side = Annotated[int, Field(gt=0, le=16_384)]
Size = tuple[Side, Side]
RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "lanczos": Image.Resampling.LANCZOS,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}

SPARE = 4
"""A JPEG is decoded at a reduced size only if both its sides stay at least this many times those of the resized image."""
MOST_PIXELS = 2**24
"""Largest number of pixels of a resized image before the crop; of larger ones (very long images) only the crop is computed."""


class Preparation(Settings):
    """The preprocessing of an image to a tensor: decode, resize, crop the centre, scale to 0…1, normalize."""

    image_size: Size
    """Height and width of the model's input."""
    channels: Literal[1, 3] = 3
    """3 for RGB, 1 for grey."""
    resize_size: Size
    """Height and width of the resized image, before the central crop to ``image_size``."""
    fit: Literal["cover", "squash"] = "cover"
    """cover: keep the aspect ratio, and cover ``resize_size``; squash: resize to exactly ``resize_size``."""
    crop_rounding: Literal["even", "down"] = "even"
    """Rounding of a crop's start that falls between two pixels: to the even one, as in torchvision and timm, or down, as in
    transformers."""
    resampling: Literal["nearest", "lanczos", "bilinear", "bicubic"] = "bilinear"
    """Interpolation of the resize, with antialiasing."""
    mean: tuple[Annotated[float, Field(ge=-1e3, le=1e3)], ...]
    """Mean of each channel, subtracted from values of 0…1."""
    std: tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...]
    """Standard deviation of each channel, by which the differences are divided."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(f"found {len(self.mean)} means and {len(self.std)} deviations for {self.channels} channels")
        if any(crop > resize for crop, resize in zip(self.image_size, self.resize_size, strict=True)):
            raise ValueError(f"the crop {self.image_size} is larger than the resized image {self.resize_size}")
        return self

    @classmethod
    def standard(cls, image_size: tuple[int, int], channels: int = 3, crop_ratio: float = 1.0, **fields: Any) -> Self:
        """Create a preparation with mean and standard deviation 0.5 as in ViT's paper; ``fields`` override other fields.

        ``fit`` is "cover" for a square ``image_size`` and "squash" for others, as transformers can express it. ``crop_ratio`` is
        the side of the crop as a fraction of the resized image's side.
        """
        resize = tuple(math.floor(side / crop_ratio) for side in image_size)  # as timm rounds
        half = (0.5,) * channels
        fit = "cover" if image_size[0] == image_size[1] else "squash"
        values = {"image_size": image_size, "channels": channels, "resize_size": resize, "fit": fit, "mean": half, "std": half}
        return cls.read({**values, **fields}, where="preparation")

    @property
    def crop_ratio(self) -> float:
        """Compute the crop's side as a fraction of the resized side, from which `standard` and timm compute ``resize_size``.

        Raises:
            ConfigError: no single fraction gives both sides, rounded down.
        """
        sides = list(zip(self.image_size, self.resize_size, strict=True))
        share = min(side / size for side, size in sides)  # the largest possible
        for ratio in (share, math.nextafter(share, 0)):  # a rounding error upwards would lose a row
            if all(math.floor(side / ratio) == size for side, size in sides):
                return ratio
        what = f"a crop of {self.resize_size} to {self.image_size} keeps different fractions of rows and columns"
        raise ConfigError(what, where="preparation", hint="give sizes with one fraction for both")

    def at(self, image_size: tuple[int, int]) -> Self:
        """Return the same preparation for another input size; the crop keeps its fraction of the resized image."""
        if image_size == self.image_size:
            return self
        sides = zip(image_size, self.resize_size, self.image_size, strict=True)
        return self.changed(image_size=image_size, resize_size=tuple(round(new * resize / old) for new, resize, old in sides))

    def __str__(self) -> str:
        rows, columns = self.resize_size
        resize = f"shorter side to {rows}" if self.fit == "cover" and rows == columns else f"{self.fit} to {rows}×{columns}"
        numbers = (f"{name} {', '.join(f'{v:g}' for v in values)}" for name, values in (("mean", self.mean), ("std", self.std)))
        return f"{resize} ({self.resampling}), centre {self.image_size[0]}×{self.image_size[1]}, {', '.join(numbers)}"

    def decode(self, source: Source, *, share: float | None = None) -> Image.Image:
        """Decode an image, upright and in the model's colours; ``share`` as in `reduced`."""
        return self.reduced(source, share=share).image

    def reduced(self, source: Source, *, share: float | None) -> Reduced:
        """Decode an image, upright and in the model's colours, perhaps at a reduced size; return it with its full-size geometry.

        ``share`` is the least fraction of the image's area that will be resized to the model's size. A JPEG with far more pixels
        than needed for it is decoded at a reduced size, without a last row or column that covers fewer pixels than the others.
        With None the full size is decoded.
        """
        image, (size, (left, top, right, bottom)) = reduced = self._reduced(source, share)
        if image.size == size:
            return reduced
        x, y = math.ceil(left), math.ceil(top)
        return Reduced(image.crop((x, y, int(right), int(bottom))), Whole(size, (left - x, top - y, right - x, bottom - y)))

    def _reduced(self, source: Source, share: float | None = 1.0) -> Reduced:
        return decode_reduced(source, channels=self.channels, least=self._least(share))

    def _least(self, share: float | None = 1.0) -> int | None:
        """Return the least side of a JPEG decoded at a reduced size, in pixels; None if it may not be reduced."""
        if share is None or self.resampling == "nearest":  # "nearest" takes single pixels, which must be the file's
            return None
        return math.ceil(SPARE * max(self.resize_size) / math.sqrt(share))

    def check(self, source: Source, *, max_pixels: int, formats: tuple[str, ...]) -> int:
        """Check the size and format of an image by its header, and return the number of pixels that `pixels` would decode.

        Raises:
            DataError: another format, a damaged header, or too many pixels.
        """
        return check_head(source, least=self._least(), max_pixels=max_pixels, formats=formats)

    def frame(self, size: Extent) -> Frame:
        """Return the resize and crop of an image of this (width, height) to the model's size.

        If the resized image would be too large, a single resize of the cropped part replaces both; its result differs only in
        the rounding between the passes over rows and columns.
        """
        frame, (high, wide) = self._in_two_steps(size), self.image_size
        if math.prod(frame.size) <= MOST_PIXELS:
            return frame
        return Resize(frame.seen, (wide, high), (0, 0, wide, high), frame.resampling)

    def _in_two_steps(self, size: Extent) -> Resize:
        """Return the resize by ``fit`` and the central crop, as torchvision computes them."""
        rows, columns = self._resized(*size)
        spare = (rows - self.image_size[0], columns - self.image_size[1])
        top, left = (side // 2 if self.crop_rounding == "down" else round(side / 2) for side in spare)
        high, wide = self.image_size
        whole = (0.0, 0.0, float(size[0]), float(size[1]))
        return Resize(whole, (columns, rows), (left, top, left + wide, top + high), RESAMPLING[self.resampling])

    def plan(self, size: Extent) -> Plan:
        """Return the plan without augmentation for an image of this (width, height)."""
        return Plan(size, self.frame(size))

    def planned(self, source: Source) -> tuple[np.ndarray, Plan]:
        """Decode, resize and crop an image: uint8 (C, H, W), and the plan, which maps positions."""
        reduced = self._reduced(source)
        plan = self.plan(reduced.whole.size)
        return plan.pixels(reduced), plan

    def pixels(self, source: Source) -> np.ndarray:
        """Decode, resize and crop an image: uint8 (C, H, W)."""
        return self.planned(source)[0]

    def crop(self, image: Image.Image) -> Image.Image:
        """Resize an image by ``fit`` and crop its centre."""
        return self.frame(image.size)(image)

    def framed(self, source: Source) -> tuple[Image.Image, Box]:
        """Return the image at the model's size, and the box that it shows, as fractions of the upright image's sides."""
        image, whole = self._reduced(source)
        (width, height), (left, top, right, bottom) = whole.size, self.box(*whole.size)
        shown = self.frame(whole.size).of(whole.inside)(image)
        return shown, (left / width, top / height, right / width, bottom / height)

    def box(self, width: int, height: int) -> Box:
        """Return the box that the model sees of an image of this size: left, top, right, bottom in the image's pixels."""
        return self._in_two_steps((width, height)).seen

    def _resized(self, width: int, height: int) -> Size:
        """Return height and width of the resized image, rounded as in torchvision for squares and as in timm otherwise."""
        rows, columns = self.resize_size
        if self.fit == "squash":
            return rows, columns
        if rows != columns:
            ratio = min(height / rows, width / columns)
            return round(height / ratio), round(width / ratio)
        longer = int(rows * max(width, height) / min(width, height))
        return (longer, columns) if height > width else (rows, longer)

    def normalize(self, pixels: "Tensor") -> "Tensor":
        """Compute ``(x / 255 - mean) / std`` of uint8 (B, C, H, W): float32."""
        import torch  # importing torch takes seconds

        both = torch.tensor([self.mean, self.std]).view(2, -1, 1, 1)
        mean, std = both.to(pixels.device, non_blocking=pixels.is_cuda)  # a blocking copy would wait for the GPU
        return pixels.float().div_(255).sub_(mean).div_(std)

    def pictures(self, images: "Tensor") -> "list[Image.Image]":
        """Convert normalized images (B, C, H, W) to Pillow images, clipped to 0…255: the inverse of `normalize`."""
        import torch

        mean, std = torch.tensor([self.mean, self.std], device=images.device).view(2, -1, 1, 1)
        pixels = ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
        return [to_picture(image) for image in pixels]

    def __call__(self, images: "Picture | Iterable[Picture]") -> "Tensor":
        """Prepare one image or several, in any form that `vitrail.predict` takes, for a model: float32 (B, C, H, W).

        Raises:
            DataError: an image cannot be read, or a value is no image.
        """
        import torch

        from vitrail.data.images.pictures import pictures_of

        if not (pictures := pictures_of(images)):
            raise DataError("there are no images to prepare", where="images", hint="give at least one")
        return self.normalize(torch.from_numpy(np.stack([self.pixels(picture) for picture in pictures])))

    def to_hugging_face(self) -> dict[str, Any]:
        """Return the content of ``preprocessor_config.json``, in the keys of transformers' image processors.

        These can cover a square, or squash. To cover another shape, ``size`` has keys of Vitrail's, which transformers refuses.
        transformers ignores Vitrail's key ``crop_rounding``.
        """
        (height, width), covers = self.resize_size, self.fit == "cover"
        if covers:
            size = {"shortest_edge": height} if height == width else {"min_height": height, "min_width": width}
        else:
            size = {"height": height, "width": width}
        return {
            "image_processor_type": "CLIPImageProcessor" if covers else "ViTImageProcessor",
            "do_convert_rgb": self.channels == 3,
            "do_resize": True,
            "size": size,
            "resample": int(RESAMPLING[self.resampling]),
            "do_center_crop": True,
            "crop_size": {"height": self.image_size[0], "width": self.image_size[1]},
            "crop_rounding": self.crop_rounding,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }

    @classmethod
    def from_hugging_face(cls, values: Mapping[str, Any], *, model_type: str | None = None, where: object = None) -> Self:
        """Read the content of a ``preprocessor_config.json``, written by `to_hugging_face` or transformers.

        Missing keys take the defaults of the processor class. ``model_type`` of the model's ``config.json`` determines the class
        if the file does not name it.

        Raises:
            ModelFileError: it is incomplete or damaged, or needs a feature that is not supported.
        """
        try:
            fields = read_processor(values, model_type)
            given = fields.pop("values")
            mean, std = given["image_mean"], given["image_std"]
            if not given.get("do_normalize", True):
                mean, std = [0.0] * len(mean), [1.0] * len(std)
            scale = 255 * given.get("rescale_factor", 1 / 255)
            if not math.isclose(scale, 1, rel_tol=1e-5):
                mean, std = [m / scale for m in mean], [s / scale for s in std]
            names = {int(number): name for name, number in RESAMPLING.items()}
            if given["resample"] not in names:
                raise ValueError(f"'resample' {given['resample']!r} is not understood")
            resampling = names[given["resample"]]
            return cls.read({**fields, "channels": len(mean), "resampling": resampling, "mean": mean, "std": std})
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError, ConfigError) as error:
            raise damaged(error, where) from None


def damaged(error: Exception, where: object) -> ModelFileError:
    """Return the error for a ``preprocessor_config.json`` that cannot be used."""
    what = f"the description of the preprocessing is incomplete or damaged, or needs an unsupported feature: {error}"
    return ModelFileError(what, where=where, hint="write the model folder again")
