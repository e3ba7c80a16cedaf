"""Random changes to training images, each a function of (seed, epoch, index) and nothing else."""

from functools import cache
from typing import Annotated, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from vitrail.data.operations import (
    BOTH_WAYS,
    POLICY,
    Colour,
    brightness,
    contrast,
    hue,
    randaugment_limits,
    rotate,
    saturation,
    trivial_limits,
)
from vitrail.data.preparation import RESAMPLING, Preparation, to_pixels
from vitrail.settings import Settings

Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Change = Annotated[float, Field(ge=0, le=1)]
Concentration = Annotated[float, Field(ge=0, le=100)]

ERASED_AREA = (0.02, 0.4)
ERASED_ASPECT = 1 / 0.3
"""The largest stretch of what is erased; with `ERASED_AREA` the paper's numbers."""


class Augmentation(Settings):
    """Random changes to training images, in this order: crop, flips, rotation, policy, colours, erasing, mixing."""

    horizontal_flip: Probability = 0.5
    """Probability of mirroring left and right."""
    vertical_flip: Probability = 0.0
    """Probability of mirroring top and bottom."""
    crop: Literal["none", "pad", "resized"] = "none"
    """Nothing; pad the edges and cut the size out anywhere; or cut a random share and resize it (Szegedy et al. 2015)."""
    padding: Annotated[int, Field(ge=0, le=4096)] = 4
    """Pixels added on every side before the crop "pad", filled with the mean colour."""
    min_area: Share = 0.25
    """Smallest share of the area that the crop "resized" keeps."""
    max_aspect: Annotated[float, Field(ge=1, le=100)] = 4 / 3
    """Largest stretch of the crop "resized"."""
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Largest angle, in degrees, to turn an image by, either way."""
    policy: Literal["none", "randaugment", "trivial"] = "none"
    """Nothing; some operations of one strength (RandAugment, Cubuk et al. 2020); or one of any strength (TrivialAugment
    in its wide space, Müller & Hutter 2021)."""
    operations: Annotated[int, Field(ge=1, le=14)] = 2
    """Operations that RandAugment applies, one after another: its N."""
    magnitude: Annotated[float, Field(ge=0, le=30)] = 9.0
    """Their strength, RandAugment's M: 10 is the full range of AutoAugment, as in the paper and in big_vision, and more
    goes beyond. Where 30 is the full range, as in torchvision, give a third."""
    brightness: Change = 0.0
    """Largest relative change of brightness, up or down."""
    contrast: Change = 0.0
    """Largest relative change of contrast, up or down."""
    saturation: Change = 0.0
    """Largest relative change of saturation, up or down."""
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Largest turn of the hue, either way, as a share of the colour circle."""
    erasing: Probability = 0.0
    """Probability of putting noise in place of a rectangle of 2 to 40 % of the area (Zhong et al. 2020)."""
    mixup: Concentration = 0.0
    """Lay each image over its neighbour in the batch, with a weight from Beta(mixup, mixup); 0 does not."""
    cutmix: Concentration = 0.0
    """Put a rectangle of its neighbour into each image, its share from Beta(cutmix, cutmix); 0 does not. With both each
    image draws one of the two."""
    repeats: Annotated[int, Field(ge=1, le=64)] = 1
    """How often an image stands in a row, each time changed anew, in an epoch of the same length (repeated augmentation).
    Copies are not mixed with each other, and so nothing is in a batch smaller than twice this."""

    @property
    def mixes(self) -> bool:
        """Whether images are mixed, so that their targets are shares of classes."""
        return self.mixup > 0 or self.cutmix > 0

    def pixels(self, image: Image.Image, preparation: Preparation, random: np.random.Generator) -> np.ndarray:
        """A decoded picture, changed at random and brought to the model's size, but not mixed: uint8 (C, H, W)."""
        if self.crop == "resized":
            return self.changed_pixels(to_pixels(self._resized_crop(image, preparation, random)), preparation, random)
        return self.changed_pixels(to_pixels(preparation.crop(image)), preparation, random)

    def changed_pixels(self, pixels: np.ndarray, preparation: Preparation, random: np.random.Generator) -> np.ndarray:
        """What follows once a picture has the model's size: a new uint8 (C, H, W), or the same where nothing changes."""
        fill = fill_colour(preparation.mean)
        if self.crop == "pad":
            down, right = (self.padding - random.integers(0, 2 * self.padding, size=2, endpoint=True)[::-1]).tolist()
            pixels = _shifted(pixels, down, right, fill)
        if random.random() < self.horizontal_flip:
            pixels = pixels[:, :, ::-1]
        if random.random() < self.vertical_flip:
            pixels = pixels[:, ::-1]
        if self._needs_picture:
            pixels = to_pixels(self._changed_picture(to_picture(pixels), fill, random))
        if self.erasing and random.random() < self.erasing:
            pixels = _erased(pixels, random)
        return np.ascontiguousarray(pixels)

    @property
    def _needs_picture(self) -> bool:
        jitter = self.brightness or self.contrast or self.saturation or self.hue
        return bool(self.rotation or jitter) or self.policy != "none"

    def _changed_picture(self, image: Image.Image, fill: Colour, random: np.random.Generator) -> Image.Image:
        """The changes that Pillow makes: rotation, policy, colours."""
        if self.rotation:
            image = rotate(image, random.uniform(-self.rotation, self.rotation), fill)
        if self.policy == "randaugment":
            limits = randaugment_limits(*image.size)
            for _ in range(self.operations):
                image = _random_operation(image, self.magnitude / 10, limits, fill, random)
        elif self.policy == "trivial":
            image = _random_operation(
                image, random.integers(0, 30, endpoint=True) / 30, trivial_limits(*image.size), fill, random
            )
        for operation, most in (
            (brightness, self.brightness),
            (contrast, self.contrast),
            (saturation, self.saturation),
            (hue, self.hue),
        ):
            if most:
                image = operation(image, random.uniform(-most, most), fill)
        return image

    def _resized_crop(self, image: Image.Image, preparation: Preparation, random: np.random.Generator) -> Image.Image:
        height, width = preparation.image_size
        target = width / height
        aspect = target * np.exp(random.uniform(-1, 1) * np.log(self.max_aspect))
        area = image.width * image.height * random.uniform(self.min_area, 1)
        crop_width = min(image.width, max(1.0, np.sqrt(area * aspect)))
        crop_height = min(image.height, max(1.0, np.sqrt(area / aspect)))
        left = random.uniform(0, image.width - crop_width)
        top = random.uniform(0, image.height - crop_height)
        box = (left, top, left + crop_width, top + crop_height)
        return image.resize((width, height), RESAMPLING[preparation.resampling], box=box)


def _random_operation(
    image: Image.Image, strength: float, limits: dict[str, float], fill: Colour, random: np.random.Generator
) -> Image.Image:
    """One operation of the policies, at ``strength`` times its limit."""
    name = _NAMES[random.integers(len(_NAMES))]
    sign = -1 if random.random() < 0.5 and name in BOTH_WAYS else 1
    return POLICY[name](image, sign * strength * limits.get(name, 0), fill)


_NAMES = list(POLICY)


def _shifted(pixels: np.ndarray, down: int, right: int, fill: Colour) -> np.ndarray:
    """The picture moved by so many pixels, with ``fill`` where it was."""
    _, height, width = pixels.shape
    result = np.empty_like(pixels)
    result[:] = np.array(fill, np.uint8)[:, None, None]
    result[:, max(0, down) : max(0, height + down), max(0, right) : max(0, width + right)] = pixels[
        :, max(0, -down) : max(0, height - down), max(0, -right) : max(0, width - right)
    ]
    return result


def _erased(pixels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Random erasing with random values (Zhong et al. 2020, https://arxiv.org/abs/1708.04896).

    The paper draws a rectangle until one fits; here one that is longer than the picture is cut to its side.
    """
    channels, height, width = pixels.shape
    area = height * width * random.uniform(*ERASED_AREA)
    aspect = np.exp(random.uniform(-1, 1) * np.log(ERASED_ASPECT))
    rows = min(height, max(1, round(np.sqrt(area * aspect))))
    columns = min(width, max(1, round(np.sqrt(area / aspect))))
    top, left = random.integers(0, (height - rows, width - columns), endpoint=True).tolist()
    result = pixels.copy()
    result[:, top : top + rows, left : left + columns] = random.integers(0, 256, (channels, rows, columns), np.uint8)
    return result


def to_picture(pixels: np.ndarray) -> Image.Image:
    """uint8 (C, H, W) as a picture, RGB or grey."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


@cache
def fill_colour(mean: tuple[float, ...]) -> Colour:
    """The mean colour of the preparation, in 0…255: what is put where there is no picture."""
    return tuple(min(255, max(0, round(255 * value))) for value in mean)


SAMPLE = 2  # tells this randomness from that of the order


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The randomness of one sample in one epoch; the same whoever asks, in whatever order."""
    return np.random.default_rng((SAMPLE, seed, epoch, index))
