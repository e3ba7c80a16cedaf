"""Pictures that were decoded at a fraction of their size."""

from typing import NamedTuple

from PIL import Image

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class Whole(NamedTuple):
    """The whole picture, upright, of which another is a reduction."""

    size: tuple[int, int]
    """Its width and height."""
    box: Box
    """Its box in the reduction: an eighth of 403 pixels is 51, of which three fill the last, so the picture ends at 50⅜."""

    def inside(self, box: Box) -> Box:
        """Return the box in the reduction that a box of the whole picture becomes."""
        (left, top, _, _), (x, y) = self.box, self._scale
        return left + box[0] * x, top + box[1] * y, left + box[2] * x, top + box[3] * y

    def outside(self, box: Box) -> Box:
        """Return the box in the whole picture that a box of the reduction becomes."""
        (left, top, _, _), (x, y) = self.box, self._scale
        return (box[0] - left) / x, (box[1] - top) / y, (box[2] - left) / x, (box[3] - top) / y

    @property
    def _scale(self) -> tuple[float, float]:
        left, top, right, bottom = self.box  # powers of two, by which nothing is rounded
        return (right - left) / self.size[0], (bottom - top) / self.size[1]


class Reduced(NamedTuple):
    """A picture that may have been decoded at a fraction of its size."""

    image: Image.Image
    whole: Whole
