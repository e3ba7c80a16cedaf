"""Pictures side by side, with titles."""

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from vitrail.study.page import figures

COLUMNS = 10


def sheet(pictures: Sequence[Image.Image], titles: Sequence[str | None]) -> Figure:
    """Return a figure of pictures, ten in a row, each below its title if it has one."""
    columns = min(COLUMNS, len(pictures))
    lines = math.ceil(len(pictures) / columns)
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(columns, 1.25 * lines), layout="constrained")
        for axes in (grid := figure.subplots(lines, columns, squeeze=False)).flat:
            axes.set_axis_off()
        for axes, picture, title in zip(grid.flat, pictures, titles, strict=False):
            axes.imshow(picture, cmap="gray" if picture.mode == "L" else None, vmin=0, vmax=255)
            if title is not None:
                axes.set_title(figures.readable(title), fontsize=8, pad=2)
    return figure
