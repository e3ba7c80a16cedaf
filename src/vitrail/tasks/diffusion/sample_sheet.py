"""Pictures side by side, with titles."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from PIL import Image

from vitrail.study.page import figures

COLUMNS = 10


@figures.styled
def sheet(pictures: Sequence[Image.Image], titles: Sequence[str | None]) -> Figure:
    """Return a figure of pictures, ten in a row, each below its title if it has one."""
    columns = min(COLUMNS, len(pictures))
    lines = math.ceil(len(pictures) / columns)
    figure, grid = figures.canvas(columns, 1.25 * lines, lines, columns)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, picture, title in zip(grid.flat, pictures, titles, strict=False):
        axes.imshow(picture, cmap="gray" if picture.mode == "L" else None, vmin=0, vmax=255)
        if title is not None:
            axes.set_title(figures.readable(title), fontsize=8, pad=2)
    return figure
