"""The predicted class of every pixel of an image, as areas for JSON and tables, as a mask, or drawn over the image."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row

Palette = Sequence[tuple[int, int, int]]
"""The colour of each class, 0…255 for red, green and blue."""
HEAD = ["class", "pixels", "fraction"]
"""Column names of `SegmentationAnswer.rows`."""
OPACITY = 0.55
"""Opacity of a mask that is laid over its image."""


class Area(NamedTuple):
    """The pixels of a class in an image."""

    name: str
    pixels: int
    fraction: float
    """Fraction of the image."""


@dataclass(frozen=True)
class SegmentationAnswer(Answer):
    """The predicted class of every pixel of an image."""

    mask: np.ndarray
    """Class indices, uint8 or above 255 classes uint16 (H, W)."""
    classes: Sequence[str]
    colors: Palette

    @cached_property
    def areas(self) -> list[Area]:
        """The areas of the predicted classes, the largest first."""
        counts = np.bincount(self.mask.ravel(), minlength=len(self.classes))
        order = np.argsort(-counts, kind="stable").tolist()
        return [Area(self.classes[i], int(counts[i]), float(counts[i] / self.mask.size)) for i in order if counts[i]]

    def to_json(self, name: str) -> dict[str, Any]:
        height, width = self.mask.shape
        return {"image": name, "width": width, "height": height, "areas": self.entries(name)}

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return an entry per class with its area."""
        return [{"image": name, "class": area.name, "pixels": area.pixels, "fraction": area.fraction} for area in self.areas]

    def rows(self) -> list[Row]:
        return [[area.name, str(area.pixels), f"{area.fraction:.6f}"] for area in self.areas]

    def lines(self) -> list[str]:
        return [", ".join(f"{area.name} {100 * area.fraction:.1f} %" for area in self.areas)]

    def draw(self, picture: Image.Image) -> Image.Image:
        """Return the image with the classes' colours laid over it."""
        return laid_over(picture, self.mask, self.colors)

    def indexed(self) -> Image.Image:
        """Return the mask as an indexed image with the palette; above 256 classes as a grey one of 16 bits."""
        return indexed_mask(self.mask, self.colors)


def indexed_mask(mask: np.ndarray, colors: Palette) -> Image.Image:
    """Return a mask (H, W) as an indexed image whose palette has the classes' colours; uint16 as a grey image of 16 bits."""
    if mask.dtype != np.uint8:
        return Image.fromarray(mask.astype(np.uint16))
    image = Image.fromarray(mask)
    image.putpalette([value for color in colors for value in color])
    return image


def laid_over(picture: Image.Image, mask: np.ndarray, colors: Palette, opacity: float = OPACITY) -> Image.Image:
    """Return an image with the colour of each class laid over it; void, an index of no class, shows the image unchanged."""
    table = np.array([*colors, (0, 0, 0)], np.uint8)
    picture = picture.convert("RGB")
    known = mask < len(colors)
    blended = Image.blend(picture, Image.fromarray(table[np.where(known, mask, len(colors))]), opacity)
    if not known.all():
        blended.paste(picture, mask=Image.fromarray(np.where(known, 0, 255).astype(np.uint8)))
    return blended
