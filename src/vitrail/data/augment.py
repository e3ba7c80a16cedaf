"""Random changes to training images, each a function of (seed, epoch, index) and nothing else."""

from typing import Annotated, Literal

import numpy as np
from PIL import Image, ImageOps
from pydantic import Field

from vitrail.data.preparation import RESAMPLING, Preparation, to_pixels
from vitrail.settings import Settings

Share = Annotated[float, Field(gt=0, le=1)]


class Augmentation(Settings):
    """Flips and crops of training images."""

    horizontal_flip: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability of mirroring left and right."""
    vertical_flip: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability of mirroring top and bottom."""
    crop: Literal["none", "pad", "resized"] = "none"
    """Nothing; pad the edges and cut the size out anywhere; or cut a random share and resize it (Szegedy et al. 2015)."""
    padding: Annotated[int, Field(ge=0, le=4096)] = 4
    """Pixels added on every side before the crop "pad", filled with the mean colour."""
    min_area: Share = 0.25
    """Smallest share of the area that the crop "resized" keeps."""
    max_aspect: Annotated[float, Field(ge=1, le=100)] = 4 / 3
    """Largest stretch of the crop "resized"."""

    def pixels(self, image: Image.Image, preparation: Preparation, random: np.random.Generator) -> np.ndarray:
        """A decoded picture, changed at random and brought to the model's size: uint8 (C, H, W)."""
        if self.crop == "none":
            image = preparation.crop(image)
        elif self.crop == "pad":
            image = self._padded_crop(preparation.crop(image), preparation, random)
        else:
            image = self._resized_crop(image, preparation, random)
        if random.random() < self.horizontal_flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if random.random() < self.vertical_flip:
            image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        return to_pixels(image)

    def _padded_crop(self, image: Image.Image, preparation: Preparation, random: np.random.Generator) -> Image.Image:
        fill = tuple(round(255 * m) for m in preparation.mean)
        padded = ImageOps.expand(image, self.padding, fill=fill if len(fill) > 1 else fill[0])
        left, top = random.integers(0, 2 * self.padding, size=2, endpoint=True).tolist()
        return padded.crop((left, top, left + image.width, top + image.height))

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


SAMPLE = 2  # tells this randomness from that of the order


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The randomness of one sample in one epoch; the same whoever asks, in whatever order."""
    return np.random.default_rng((SAMPLE, seed, epoch, index))
