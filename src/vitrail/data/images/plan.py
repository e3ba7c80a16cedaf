"""A geometric plan: the sampled crop, flip and warp of one image. Points, boxes and masks are transformed by the same plan.

Positions are (x, y) in pixels, x to the right and y down; the centre of the first pixel is at (0.5, 0.5).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from vitrail.data.images.operations import BACK, OPERATIONS, Colour, Matrix, pillow_colour
from vitrail.data.images.reduction import Box, Reduced, Whole

Extent = tuple[int, int]
"""Width and height in pixels."""


class Move(NamedTuple):
    """An affine map of positions from an image to a result."""

    back: Matrix
    """Maps a position in the result to the position in the image."""
    size: Extent
    """Size of the image; positions outside of it show no image."""


class Step(Protocol):
    """A change of an image that keeps its size."""

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Return the changed pixels, uint8 (C, H, W), without changing ``pixels``."""

    def moves(self, size: Extent) -> Iterable[Move]:
        """Return the maps of positions in an image of this size, in the order of their application."""


class Frame(Protocol):
    """A resize or crop of an image to the model's size."""

    @property
    def result(self) -> Extent:
        """Width and height of the resulting image."""

    def __call__(self, picture: Image.Image) -> Image.Image: ...

    def of(self, move: Callable[[Box], Box]) -> "Frame":
        """Return the same frame for another resolution of the image; ``move`` maps boxes of this one to that one."""

    def moves(self, size: Extent) -> Iterable[Move]: ...


@dataclass(frozen=True, slots=True)
class Resize:
    """A resize of a part of the image to ``size``, followed by a crop to ``kept``."""

    part: Box
    size: Extent
    kept: tuple[int, int, int, int]
    """Left, top, right, bottom of the crop in the resized image; with a ``fill`` it may exceed the image, which is padded."""
    resampling: Image.Resampling
    fill: Colour | None = None
    """The colour of padding."""

    def __call__(self, picture: Image.Image) -> Image.Image:
        resized = picture.resize(self.size, self.resampling, box=self.part)
        if self.kept == (0, 0, *self.size):
            return resized
        if self.fill is None:
            return resized.crop(self.kept)
        padded = Image.new(picture.mode, self.result, pillow_colour(self.fill))
        padded.paste(resized, (-self.kept[0], -self.kept[1]))
        return padded

    @property
    def result(self) -> Extent:
        left, top, right, bottom = self.kept
        return right - left, bottom - top

    @property
    def seen(self) -> Box:
        """Return the box that remains after the crop, in the image's own pixels."""
        x, y = self._pitch
        left, top, right, bottom = self.kept
        return (
            self.part[0] + left * x,
            self.part[1] + top * y,
            min(self.part[0] + right * x, self.part[2]),
            min(self.part[1] + bottom * y, self.part[3]),
        )

    @property
    def _pitch(self) -> tuple[float, float]:
        left, top, right, bottom = self.part
        return (right - left) / self.size[0], (bottom - top) / self.size[1]

    def of(self, move: Callable[[Box], Box]) -> "Resize":
        return replace(self, part=move(self.part))

    def moves(self, size: Extent) -> Iterable[Move]:
        x, y = self._pitch
        yield Move((x, 0, self.part[0], 0, y, self.part[1]), size)
        yield Move((1, 0, self.kept[0], 0, 1, self.kept[1]), self.size)


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift of the image by whole pixels; ``fill`` is the colour of the uncovered area."""

    right: int
    down: int
    fill: Colour

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        right, down = self.right, self.down
        _, height, width = pixels.shape
        result = np.empty_like(pixels)
        result[:] = np.array(self.fill, np.uint8)[:, None, None]
        result[:, max(0, down) : max(0, height + down), max(0, right) : max(0, width + right)] = pixels[
            :, max(0, -down) : max(0, height - down), max(0, -right) : max(0, width - right)
        ]
        return result

    def moves(self, size: Extent) -> Iterable[Move]:
        yield Move((1, 0, -self.right, 0, 1, -self.down), size)


@dataclass(frozen=True, slots=True)
class Flip:
    """A horizontal flip (``across``), a vertical flip (``down``), or both."""

    across: bool
    down: bool

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        if self.across:
            pixels = pixels[:, :, ::-1]
        if self.down:
            pixels = pixels[:, ::-1]
        return pixels

    def moves(self, size: Extent) -> Iterable[Move]:
        x, y = (-1, size[0]) if self.across else (1, 0), (-1, size[1]) if self.down else (1, 0)
        yield Move((x[0], 0, x[1], 0, y[0], y[1]), size)


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations of `vitrail.data.images.operations`: pairs of a name and an amount, and the colour for uncovered pixels."""

    operations: tuple[tuple[str, float], ...]
    fill: Colour

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        picture = to_picture(pixels)
        for name, amount in self.operations:
            picture = OPERATIONS[name](picture, amount, self.fill)
        return to_pixels(picture)

    def moves(self, size: Extent) -> Iterable[Move]:
        return (Move(BACK[name](amount, *size), size) for name, amount in self.operations if name in BACK)


@dataclass(frozen=True, slots=True)
class Erase:
    """Random erasing: ``noise``, uint8 (C, rows, columns), replaces a rectangle."""

    left: int
    top: int
    noise: np.ndarray = field(repr=False, compare=False)

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        _, rows, columns = self.noise.shape
        result = pixels.copy()
        result[:, self.top : self.top + rows, self.left : self.left + columns] = self.noise
        return result

    def moves(self, size: Extent) -> Iterable[Move]:
        return ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of an image of one size: ``frame`` resizes it to the model's size, then ``steps`` change it.

    Each step maps positions by an affine map or not at all, so points, boxes and masks can be transformed by the same plan.
    """

    size: Extent
    """Width and height of the image."""
    frame: Frame
    steps: tuple[Step, ...] = ()

    def pixels(self, picture: Image.Image | Reduced) -> np.ndarray:
        """Resize an image, which may be decoded at a fraction of its size, and apply the steps: uint8 (C, H, W)."""
        if isinstance(picture, Reduced):
            return Plan(picture.image.size, self.frame.of(picture.whole.inside), self.steps).pixels(picture.image)
        self._require(picture.size)
        return self.changed(to_pixels(self.frame(picture)))

    def changed(self, pixels: np.ndarray) -> np.ndarray:
        """Apply the steps to pixels of the model's size, uint8 (C, H, W); without steps the same array is returned."""
        for step in self.steps:
            pixels = step(pixels)
        return np.ascontiguousarray(pixels)

    def of_whole(self, whole: Whole) -> "Plan":
        """Return the same plan for the full-size image, if this plan is for a reduced one."""
        return self if whole.size == self.size else Plan(whole.size, self.frame.of(whole.outside), self.steps)

    @property
    def matrix(self) -> np.ndarray:
        """Return the matrix that maps (x, y, 1) in the image to the result: float64 (3, 3)."""
        back = np.eye(3)
        for move in self._moves():
            back = back @ (*np.reshape(move.back, (2, 3)), (0, 0, 1))
        return np.linalg.inv(back)

    @property
    def mirrored(self) -> bool:
        """Return True if the result is mirrored, so that a left hand looks like a right hand.

        Flipping both ways is a rotation by 180°, and not mirrored.
        """
        return bool(np.linalg.det(self.matrix) < 0)

    def points(self, points: np.ndarray) -> np.ndarray:
        """Map points (N, 2) of the image to the result: float64 (N, 2), where they may be outside of the result.

        A point that leaves the image in one step and returns in a later one is mapped as if it had stayed visible.
        """
        matrix = self.matrix
        return np.asarray(points, np.float64) @ matrix[:2, :2].T + matrix[:2, 2]

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Map boxes (N, 4), left, top, right, bottom, to the boxes around their mapped corners, clipped: float64 (N, 4).

        A box outside of the result gets an area of 0.
        """
        corners = np.asarray(boxes, np.float64)[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]  # (N, 4, 2)
        moved = self.points(corners).clip(0, self.frame.result)
        return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)

    def mask(self, mask: np.ndarray, fill: int = 255) -> np.ndarray:
        """Map an integer mask of the image (H, W) to the result: int64 (H', W').

        Each pixel takes the nearest value of the mask, or ``fill`` outside of the image. Colour operations and random erasing do
        not change a mask.
        """
        self._require(mask.shape[::-1])
        width, height = self.frame.result
        x, y = (np.arange(width) + 0.5)[None], (np.arange(height) + 0.5)[:, None]
        seen = np.ones((height, width), bool)
        for (a, b, c, d, e, f), (width, height) in reversed(self._moves()):
            # a map that does not rotate leaves the positions a row (1, W') and a column (H', 1), which is far faster
            x, y = a * x + (b * y if b else 0) + c, (d * x if d else 0) + e * y + f
            seen &= (x >= 0) & (x < width) & (y >= 0) & (y < height)
        width, height = self.size
        columns, rows = x.clip(0, width - 1).astype(np.intp), y.clip(0, height - 1).astype(np.intp)
        result = mask[rows, columns].astype(np.int64)
        result[~seen] = fill
        return result

    def _moves(self) -> list[Move]:
        return [*self.frame.moves(self.size), *(move for step in self.steps for move in step.moves(self.frame.result))]

    def _require(self, size: tuple[int, ...]) -> None:
        if tuple(size) != self.size:
            raise ValueError(f"a plan for {self.size} (width, height) cannot be applied to {tuple(size)}")


def to_pixels(image: Image.Image) -> np.ndarray:
    """Convert a Pillow image to uint8 (C, H, W)."""
    return np.stack([np.asarray(channel) for channel in image.split()])


def to_picture(pixels: np.ndarray) -> Image.Image:
    """Convert uint8 (C, H, W) to a Pillow image, RGB or grey."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
