"""Coordinates of a map's values in the model's input, and of the map in an image."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitrail.data.images.reduction import Box
from vitrail.parts import PatchEmbedding
from vitrail.parts.vision.heatmap_decoder import pixels_per_place
from vitrail.study.maps.attention import attending

Size = tuple[int, int]
"""Height and width in pixels, or rows and columns of a map."""


@dataclass(frozen=True)
class Places:
    """Coordinates of a map's values, in images of one size; each value stands for the pixels nearest to its centre.

    Pixels count from 0; a centre may lie between two pixels.

    Args:
        rows: centre of each row of values, from the top.
        columns: centre of each column of values, from the left.
        size: size of the images.
        seen: part of the images, from the top left, that the values depend on.
    """

    rows: Tensor
    columns: Tensor
    size: Size
    seen: Size

    @classmethod
    def even(cls, grid: Size, size: Size) -> "Places":
        """Return the coordinates of a map that divides images evenly."""
        rows, columns = ((torch.arange(count) + 0.5) * side / count - 0.5 for count, side in zip(grid, size, strict=True))
        return cls(rows, columns, size, size)

    def within(self, view: Box) -> tuple[Box, Box]:
        """Return the map's box in a larger image of which the model sees ``view``, and the box that the values depend on.

        ``overlay(picture, map, *places.within(view))`` draws it.
        """
        (high, wide), (left, top, right, bottom) = self.size, view
        across, down = (right - left) / wide, (bottom - top) / high
        first, last = _ends(self.columns, wide)
        above, below = _ends(self.rows, high)
        return (
            (left + across * first, top + down * above, left + across * last, top + down * below),
            (left, top, left + across * self.seen[1], top + down * self.seen[0]),
        )

    def nearest(self, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row and column of the value nearest to each position: int64, shaped like the positions."""
        borders = ((middles[1:] + middles[:-1]) / 2 for middles in (self.rows, self.columns))
        row, column = (
            torch.bucketize(place.contiguous(), border.to(place)) for place, border in zip((row, column), borders, strict=True)
        )
        return row, column

    def on_pixels(self, values: Tensor) -> Tensor:
        """Expand values (B, rows, columns) to pixels, (B, height, width); 0 for pixels that no value depends on."""
        (high, wide), (last_row, last_column) = self.size, self.seen
        row, column = self.nearest(torch.arange(float(high)), torch.arange(float(wide)))
        found = values[:, row[:, None], column]
        found[:, last_row:] = found[:, :, last_column:] = 0
        return found


def patch_places(model: nn.Module) -> Places:
    """Return the coordinates of a map of patches, for a model whose layers attend to the whole image.

    Plain patches lie side by side, and may leave a remainder at the right and bottom. Tokens of a convolutional stem or of
    overlapping patches have other centres than such patches.

    Raises:
        ConfigError: the layers of the model do not attend to the whole image.
    """
    vit = attending(model)
    size, steps, grid, firsts = vit.config.image_size, vit.config.patch_size, vit.config.grid, vit.embedding.first_middle
    rows, columns = (first + step * torch.arange(count) for first, step, count in zip(firsts, steps, grid, strict=True))
    if not isinstance(vit.embedding, PatchEmbedding):
        return Places(rows, columns, size, size)
    high, wide = (int(middles[-1] + (step + 1) / 2) for middles, step in zip((rows, columns), steps, strict=True))
    return Places(rows, columns, size, (high, wide))


def heatmap_places(size: Size, heatmap: Size) -> Places:
    """Return the coordinates of a heatmap of size ``heatmap`` in images of ``size``."""
    across, down = pixels_per_place(size, heatmap).tolist()
    return Places(down * torch.arange(heatmap[0]), across * torch.arange(heatmap[1]), size, size)


def _ends(middles: Tensor, side: int) -> tuple[float, float]:
    """Return both ends of a map along a side: half a step beyond the outer centres; for a single value the whole side."""
    if len(middles) < 2:
        return 0.0, float(side)
    first, last = float(middles[0]) + 0.5, float(middles[-1]) + 0.5
    half = (last - first) / (len(middles) - 1) / 2
    return first - half, last + half
