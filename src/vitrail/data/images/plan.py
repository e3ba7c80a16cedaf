"""A geometric plan: the sampled crop, flip and warp of one image. Points, boxes and masks are transformed by the same plan.

Places are (x, y) in pixels, x to the right and y down; the centre of the first pixel is at (0.5, 0.5).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from vitrail.data.images.operations import BACK, OPERATIONS, Colour, Matrix
from vitrail.data.images.reduction import Box, Reduced, Whole

Extent = tuple[int, int]
"""Width and height in pixels."""


class Move(NamedTuple):
    """A change of places."""

    back: Matrix
    """Takes a place in the result to its place in the picture."""
    size: Extent
    """Size of the picture; positions beyond it show nothing of it."""


class Step(Protocol):
    """A change of a picture that leaves its size as it is."""

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Return changed pixels, uint8 (C, H, W), and leave ``pixels`` as they are."""

    def moves(self, size: Extent) -> Iterable[Move]:
        """Return the moves of positions in a picture of this size, one after another."""


class Frame(Protocol):
    """A way to bring a picture to the model's size."""

    @property
    def result(self) -> Extent:
        """Width and height of the resulting picture."""

    def __call__(self, picture: Image.Image) -> Image.Image: ...

    def of(self, move: Callable[[Box], Box]) -> "Frame":
        """Return the same frame for another picture, to which ``move`` takes boxes of this one."""

    def moves(self, size: Extent) -> Iterable[Move]: ...


@dataclass(frozen=True, slots=True)
class Resize:
    """A part of the picture is brought to a size, of which a part is kept."""

    part: Box
    size: Extent
    kept: tuple[int, int, int, int]
    """Left, top, right, bottom."""
    resampling: Image.Resampling

    def __call__(self, picture: Image.Image) -> Image.Image:
        resized = picture.resize(self.size, self.resampling, box=self.part)
        return resized if self.kept == (0, 0, *self.size) else resized.crop(self.kept)

    @property
    def result(self) -> Extent:
        left, top, right, bottom = self.kept
        return right - left, bottom - top

    @property
    def seen(self) -> Box:
        """Return the kept part in the picture's own pixels."""
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
        return Resize(move(self.part), self.size, self.kept, self.resampling)

    def moves(self, size: Extent) -> Iterable[Move]:
        x, y = self._pitch
        yield Move((x, 0, self.part[0], 0, y, self.part[1]), size)
        yield Move((1, 0, self.kept[0], 0, 1, self.kept[1]), self.size)


@dataclass(frozen=True, slots=True)
class Shift:
    """The picture moved by whole pixels, with a colour where it was."""

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
    """Left and right exchanged (``across``), top and bottom (``down``), or both."""

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
    """Operations of `data.operations`, by their names, each with its amount, and the colour of what comes into view."""

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
    """Noise, uint8 (C, rows, columns), in place of a rectangle."""

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
    """The changes of an image of one size: it is brought to the model's size, then changed in some steps.

    Every step is an affine map of places, or leaves them where they are, and so whatever belongs to the picture follows.
    """

    size: Extent
    """Size of the picture."""
    frame: Frame
    steps: tuple[Step, ...] = ()

    def pixels(self, picture: Image.Image | Reduced) -> np.ndarray:
        """Bring a picture, or one decoded at a fraction of its size, to the model's size, and change it: uint8 (C, H, W)."""
        if isinstance(picture, Reduced):
            return Plan(picture.image.size, self.frame.of(picture.whole.inside), self.steps).pixels(picture.image)
        self._require(picture.size)
        return self.changed(to_pixels(self.frame(picture)))

    def changed(self, pixels: np.ndarray) -> np.ndarray:
        """Apply the steps to pixels of the model's size: a new uint8 (C, H, W), or the same where nothing changes."""
        for step in self.steps:
            pixels = step(pixels)
        return np.ascontiguousarray(pixels)

    def of_whole(self, whole: Whole) -> "Plan":
        """Return the same plan for the whole picture, where this one is for a reduction of it."""
        return self if whole.size == self.size else Plan(whole.size, self.frame.of(whole.outside), self.steps)

    @property
    def matrix(self) -> np.ndarray:
        """Return the map of (x, y, 1) in the picture to its position in the result: float64 (3, 3)."""
        back = np.eye(3)
        for move in self._moves():
            back = back @ (*np.reshape(move.back, (2, 3)), (0, 0, 1))
        return np.linalg.inv(back)

    @property
    def mirrored(self) -> bool:
        """Return True if the result is a mirror image, in which a left hand looks like a right one.

        Turned by half a circle, which is flipped both ways, it is not.
        """
        return bool(np.linalg.det(self.matrix) < 0)

    def points(self, points: np.ndarray) -> np.ndarray:
        """Return the positions of points (N, 2) of the image in the result: float64 (N, 2), some perhaps beyond its sides.

        One that leaves the picture in one step and comes back in another is where it would be seen, had it not left.
        """
        matrix = self.matrix
        return np.asarray(points, np.float64) @ matrix[:2, :2].T + matrix[:2, 2]

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Return the boxes around the moved corners of boxes (N, 4), left, top, right, bottom, cut to the result: float64 (N, 4).

        One that is not in view has no area.
        """
        corners = np.asarray(boxes, np.float64)[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]  # (N, 4, 2)
        moved = self.points(corners).clip(0, self.frame.result)
        return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1)

    def mask(self, mask: np.ndarray, fill: int = 255) -> np.ndarray:
        """Return a mask of the image (H, W), of any integers, moved as its pixels are: int64 (H', W').

        Each pixel takes the value of the nearest one, and ``fill`` where there is no image. Operations on colors and random
        erasing leave a mask as it is.
        """
        self._require(mask.shape[::-1])
        width, height = self.frame.result
        x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
        seen = np.ones((height, width), bool)
        for (a, b, c, d, e, f), (width, height) in reversed(self._moves()):
            x, y = a * x + b * y + c, d * x + e * y + f
            seen &= (x >= 0) & (x < width) & (y >= 0) & (y < height)
        result = np.full(seen.shape, fill, np.int64)
        result[seen] = mask[y[seen].astype(np.intp), x[seen].astype(np.intp)]
        return result

    def _moves(self) -> list[Move]:
        return [*self.frame.moves(self.size), *(move for step in self.steps for move in step.moves(self.frame.result))]

    def _require(self, size: tuple[int, ...]) -> None:
        if tuple(size) != self.size:
            raise ValueError(f"a plan for {self.size} (width, height) cannot be followed at {tuple(size)}")


def to_pixels(image: Image.Image) -> np.ndarray:
    """Return a picture as uint8 (C, H, W)."""
    return np.stack([np.asarray(channel) for channel in image.split()])


def to_picture(pixels: np.ndarray) -> Image.Image:
    """Return uint8 (C, H, W) as a picture, RGB or grey."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
