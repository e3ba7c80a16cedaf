"""A crop of a box, perhaps rotated, to a fixed size by one affine map."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from vitrail.data.images.operations import Matrix
from vitrail.data.images.plan import Extent, Move
from vitrail.data.images.reduction import Box


@dataclass(frozen=True, slots=True)
class Warp:
    """An affine map from a rotated box of an image to a result; outside of the image the result is black."""

    centre: tuple[float, float]
    """Centre of the box in the image."""
    pitch: tuple[float, float]
    """Pixels of the image per pixel of the result, along its width and its height."""
    angle: float
    """Degrees by which the box is rotated clockwise; the image content rotates anticlockwise."""
    result: Extent
    """Width and height of the resulting image."""

    def __call__(self, picture: Image.Image) -> Image.Image:
        """Return the resized box, bilinear; a much larger image is first reduced by an integer factor."""
        factor = int(min(self.pitch))
        if factor < 2:
            return self._resized(picture, self.back)
        left, top, right, bottom = self._around(picture.size)
        if left >= right or top >= bottom:
            return Image.new(picture.mode, self.result)
        a, b, c, d, e, f = self.back
        back = (a / factor, b / factor, (c - left) / factor, d / factor, e / factor, (f - top) / factor)
        return self._resized(picture.reduce(factor, box=(left, top, right, bottom)), back)

    def _resized(self, picture: Image.Image, back: Matrix) -> Image.Image:
        return picture.transform(self.result, Image.Transform.AFFINE, back, Image.Resampling.BILINEAR)

    @property
    def back(self) -> Matrix:
        """Return the map from a position in the result to the position in the image."""
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        (x, y), (width, height) = self.pitch, self.result
        a, b, d, e = cos * x, -sin * y, sin * x, cos * y
        return a, b, self.centre[0] - a * width / 2 - b * height / 2, d, e, self.centre[1] - d * width / 2 - e * height / 2

    @property
    def seen(self) -> Box:
        """Return the box before rotation: left, top, right, bottom in the image, which may be outside of it."""
        (x, y), (across, down) = self.centre, (pitch * side / 2 for pitch, side in zip(self.pitch, self.result, strict=True))
        return x - across, y - down, x + across, y + down

    def outside(self, places: np.ndarray) -> np.ndarray:
        """Map positions (…, 2) of the result to the image; in both the centre of the first pixel is (0, 0)."""
        a, b, c, d, e, f = self.back
        return (np.asarray(places, np.float64) + 0.5) @ np.array([[a, d], [b, e]]) + (c - 0.5, f - 0.5)

    def inside(self, places: np.ndarray) -> np.ndarray:
        """Map positions (…, 2) of the image to the result: the inverse of `outside`."""
        a, b, c, d, e, f = self.back
        return (np.asarray(places, np.float64) + 0.5 - (c, f)) @ np.linalg.inv([[a, d], [b, e]]) - 0.5

    def of(self, move: Callable[[Box], Box]) -> "Warp":
        # a reduced image has the same scale in width and height
        x, y = self.centre
        left, top, right, bottom = move((x, y, x + self.pitch[0], y + self.pitch[1]))
        return Warp((left, top), (right - left, bottom - top), self.angle, self.result)

    def moves(self, size: Extent) -> Iterable[Move]:
        yield Move(self.back, size)

    def _around(self, size: Extent) -> tuple[int, int, int, int]:
        """Return the part of an image of this size that the box touches, with a margin for interpolation."""
        (a, b, c, d, e, f), (width, height) = self.back, self.result
        corners = [(0, 0), (width, 0), (0, height), (width, height)]
        xs, ys = [a * x + b * y + c for x, y in corners], [d * x + e * y + f for x, y in corners]
        rim = 2 * max(self.pitch)
        return (
            max(0, math.floor(min(xs) - rim)),
            max(0, math.floor(min(ys) - rim)),
            min(size[0], math.ceil(max(xs) + rim)),
            min(size[1], math.ceil(max(ys) + rim)),
        )
