"""Images in a cell of a notebook while they are made."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

Preview = Callable[[int, int, Callable[[], list[Image.Image]]], None]
"""A function of a step's number, the number of steps, and a function that returns the images as the model expects them then."""
SHOWN, COLUMNS = 16, 8
"""Images in a cell, and in a row of them."""
SIDE, GAP = 64, 4
"""Pixels of a side, and between two images."""


class NotebookPreview:
    """A picture in a notebook's cell that is drawn anew with the model's estimate of the images."""

    SECONDS = 0.5
    """Between two drawings."""

    def __init__(self) -> None:
        from IPython.display import display

        self._cell: Any = display(Image.new("L", (1, 1)), display_id=True)
        self.drawn = 0.0

    def __call__(self, number: int, count: int, pictures: Callable[[], list[Image.Image]]) -> None:
        if number == count or time.monotonic() - self.drawn >= self.SECONDS:
            self._cell.update(tiled(pictures()[:SHOWN], COLUMNS))
            self.drawn = time.monotonic()


def tiled(pictures: Sequence[Image.Image], columns: int) -> Image.Image:
    """Return pictures of one size side by side on white, small ones enlarged by a whole factor to about `SIDE` pixels."""
    (width, height), columns = pictures[0].size, min(columns, len(pictures))
    factor = max(1, SIDE // max(width, height))
    wide, tall = factor * width + GAP, factor * height + GAP
    rows = math.ceil(len(pictures) / columns)
    whole = Image.new(pictures[0].mode, (wide * columns - GAP, tall * rows - GAP), "white")
    for number, picture in enumerate(pictures):
        enlarged = picture.resize((factor * width, factor * height), Image.Resampling.NEAREST)
        whole.paste(enlarged, (wide * (number % columns), tall * (number // columns)))
    return whole
