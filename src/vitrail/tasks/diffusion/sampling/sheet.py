"""Pictures side by side, with titles."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vitrail.data.images.preparation import Preparation
from vitrail.study.page import figures
from vitrail.tasks.diffusion.quality.copies import Copies

COLUMNS = 10
GAP, MARGIN = 0.25, 0.05
"""Room above a picture, for its title, and beside it, in widths of a picture."""


@figures.styled
def sheet(pictures: Sequence[Image.Image], titles: Sequence[str | None]) -> Figure:
    """Return a figure of pictures of one size, ten in a row, each below its title if it has one."""
    columns, (width, height) = min(COLUMNS, len(pictures)), pictures[0].size
    lines, tall = math.ceil(len(pictures) / columns), height / width
    figure, axes = figures.canvas(columns, lines * (tall + GAP))
    for number, (picture, title) in enumerate(zip(pictures, titles, strict=False)):
        left, top = number % columns * (1 + MARGIN), number // columns * (tall + GAP)
        shades = {"cmap": "gray", "vmin": 0, "vmax": 255} if picture.mode == "L" else {}
        axes.imshow(picture, extent=(left, left + 1, top + tall, top), **shades)
        if title is not None:
            axes.text(left + 0.5, top - 0.03, figures.readable(title), fontsize=8, ha="center", va="bottom", parse_math=False)
    axes.set(xlim=(0, columns * (1 + MARGIN)), ylim=(lines * (tall + GAP) - GAP, -GAP), aspect="equal")
    axes.set_axis_off()
    return figure


def copy_sheet(copies: Copies, pictures: Sequence[Image.Image], preparation: Preparation) -> Figure:
    """Return a figure of the samples nearest to a training image, each beside it.

    A title is the distance, divided by the median distance of held-out images.
    """
    usual = float(np.median(copies.held_out.apart)) or 1.0
    titles = [title for _, _, distance in copies.worst() for title in (f"made {distance / usual:.2f}", "training")]
    return sheet(copies.pairs(pictures, preparation), titles)
