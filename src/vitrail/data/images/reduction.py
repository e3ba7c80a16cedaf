"""Images that were decoded at a fraction of their size, and the geometry of the full size."""

from typing import NamedTuple

from PIL import Image

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class Whole(NamedTuple):
    """The geometry of a full-size upright image, relative to a reduced version of it."""

    size: tuple[int, int]
    """Width and height of the full-size image."""
    box: Box
    """The box of the full image in the reduced one. At 1/8, 403 pixels become 51, and the last is only 3/8 covered: the box ends
    at 50⅜."""

    def inside(self, box: Box) -> Box:
        """Map a box of the full-size image to the reduced one."""
        (left, top, _, _), (x, y) = self.box, self._scale
        return left + box[0] * x, top + box[1] * y, left + box[2] * x, top + box[3] * y

    def outside(self, box: Box) -> Box:
        """Map a box of the reduced image to the full-size one."""
        (left, top, _, _), (x, y) = self.box, self._scale
        return (box[0] - left) / x, (box[1] - top) / y, (box[2] - left) / x, (box[3] - top) / y

    @property
    def _scale(self) -> tuple[float, float]:
        left, top, right, bottom = self.box  # the scale is a power of two, so nothing is rounded
        return (right - left) / self.size[0], (bottom - top) / self.size[1]


class Reduced(NamedTuple):
    """An image that may have been decoded at a fraction of its size, with its full-size geometry."""

    image: Image.Image
    whole: Whole
