"""Shapes of annotations: polygons and run-length codes, drawn as masks."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import IO, NamedTuple

import numpy as np
from PIL import Image

from vitrail.data.images.plan import Extent
from vitrail.settings import brief
from vitrail.tasks.segmentation.files.coding import VOID


class Patch(NamedTuple):
    """A part of an image: its first row and column, and True for the pixels of a shape, bool (h, w)."""

    top: int
    left: int
    inside: np.ndarray


@dataclass(frozen=True, eq=False)
class Polygons:
    """One or several polygons, (N, 2) each, in pixels; the centre of the first pixel is at (0.5, 0.5)."""

    polygons: tuple[np.ndarray, ...]

    @property
    def area(self) -> float:
        """The area in pixels, by the shoelace formula."""
        following = (np.roll(points, -1, 0) for points in self.polygons)
        return sum(abs(a[:, 0] @ b[:, 1] - a[:, 1] @ b[:, 0]) / 2 for a, b in zip(self.polygons, following, strict=True))

    def patches(self, size: Extent) -> Iterable[Patch]:
        return (inside(points, size) for points in self.polygons)


@dataclass(frozen=True, eq=False)
class Runs:
    """A run-length code: lengths of runs, outside and inside in turns, down the columns of an image of ``size``."""

    counts: str | tuple[int, ...]
    """The lengths, or COCO's text of them; see `lengths_in`."""
    size: Extent

    def __post_init__(self) -> None:
        """Raise `ValueError` for lengths that do not fill the image."""
        lengths = self.lengths
        if min(lengths, default=0) < 0 or sum(lengths) != self.size[0] * self.size[1]:
            raise ValueError(f"its runs have {sum(lengths):,} pixels, the image {self.size[0]}×{self.size[1]}")

    @property
    def lengths(self) -> Sequence[int]:
        return lengths_in(self.counts) if isinstance(self.counts, str) else self.counts

    @property
    def area(self) -> float:
        return sum(self.lengths[1::2])

    def patches(self, size: Extent) -> Iterable[Patch]:
        flat = np.repeat(np.arange(len(self.lengths)) % 2 == 1, self.lengths)
        yield Patch(0, 0, flat.reshape(self.size).T)


@dataclass(frozen=True, eq=False)
class Drawing:
    """A mask that is drawn from shapes when it is opened, as a PNG file."""

    name: str
    size: Extent
    shapes: tuple[tuple[int, Polygons | Runs], ...]
    """Values with their shapes, in the order of drawing; other pixels are 0."""

    @property
    def digest(self) -> str:
        """A digest of the shapes, which takes less time than drawing them."""
        parts = [
            (value, [part.tolist() for part in s.polygons] if isinstance(s, Polygons) else s.counts) for value, s in self.shapes
        ]
        return hashlib.blake2b(repr((self.size, parts)).encode(), digest_size=16).hexdigest()

    def open(self) -> IO[bytes]:
        largest = max((value for value, _ in self.shapes), default=0)
        mask = np.zeros(self.size[::-1], np.uint8 if largest <= VOID else np.uint16)
        for value, shape in self.shapes:
            for top, left, inside in shape.patches(self.size):
                mask[top : top + inside.shape[0], left : left + inside.shape[1]][inside] = value
        file = BytesIO()
        Image.fromarray(mask).save(file, "PNG", compress_level=1)
        file.seek(0)
        return file


def inside(points: np.ndarray, size: Extent) -> Patch:
    """Return the pixels whose centres are inside a polygon (N, 2), by the even-odd rule.

    Each edge toggles, in every row whose centre it crosses, all pixels to the right of the crossing.
    """
    left, top = np.floor(points.min(0)).clip(0, size).astype(int)
    right, bottom = np.ceil(points.max(0)).clip(0, size).astype(int)
    wide, high = max(0, right - left), max(0, bottom - top)
    (x0, y0), (x1, y1) = points.T, np.roll(points, -1, 0).T
    first, last = (np.ceil(ends - 0.5).clip(top, bottom).astype(int) for ends in (np.minimum(y0, y1), np.maximum(y0, y1)))
    edge = np.repeat(np.arange(len(points)), last - first)  # one entry for each row that an edge crosses
    row = first[edge] + np.arange(len(edge)) - (np.cumsum(last - first) - (last - first))[edge]
    crossing = x0[edge] + (row + 0.5 - y0[edge]) * (x1 - x0)[edge] / (y1 - y0)[edge]
    column = np.ceil(crossing - 0.5).clip(left, left + wide).astype(int)
    toggles = np.bincount((row - top) * (wide + 1) + column - left, minlength=high * (wide + 1))
    return Patch(top, left, np.cumsum(toggles.reshape(high, wide + 1), axis=1)[:, :-1] % 2 == 1)


def lengths_in(text: str) -> list[int]:
    """Decode COCO's text of run lengths: five bits a character, the lowest first, each length less the one two before it.

    Raises:
        ValueError: the text is no such code.
    """
    lengths: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > 50:
            raise ValueError(f"its counts {brief(text)} are no run-length code")
        value |= (code & 31) << shift
        shift += 5
        if not code & 32:
            value -= (code >> 4 & 1) << shift  # the sign
            lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
            value = shift = 0
    if shift:
        raise ValueError(f"its counts {brief(text)} end in the middle of a number")
    return lengths
