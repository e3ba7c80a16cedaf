"""Figures of training images as the model sees them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitrail.data.images.plan import to_picture
from vitrail.data.loading.dataset import ImageDataset
from vitrail.study.page.figures import bare, canvas, readable, short_path, styled

SIDE = 1.35
"""Longer side of an image on the sheet, in inches."""
HEIGHT = 1.9
"""Height of an image on a `version_sheet`, in inches."""
SMALL = 96
"""Side in pixels below which images are drawn pixel by pixel."""


@styled
def augmentation_sheet(
    dataset: ImageDataset,
    indices: Sequence[int],
    classes: list[str],
    *,
    versions: int = 5,
    about: Callable[[Any], str] | None = None,
) -> Figure:
    """Draw a row per item: the prepared image, then ``versions`` augmented ones.

    The items form a batch, as in training: each is mixed with the one below it, and repeated augmentation makes several
    versions in an epoch. If images are mixed, classes and their fractions are written below. ``about`` returns the text beside
    an item, by default its classes.
    """
    repeats = dataset.augmentation.repeats
    epochs = range(-(-versions // repeats))
    batches = [dataset.batch([(e, i + copy * len(dataset)) for i in indices for copy in range(repeats)]) for e in epochs]
    height, width = dataset.preparation.image_size
    cell = (SIDE * min(1, width / height), SIDE * min(1, height / width) + (0.3 if dataset.augmentation.mixes else 0))
    size = (1 + versions) * (cell[0] + 0.1) + 1, len(indices) * (cell[1] + 0.1) + 0.3
    figure, grid = canvas(*size, len(indices), 1 + versions)
    for row, index in enumerate(indices):
        item = dataset.items[index]
        _draw(grid[row, 0], dataset.preparation.pixels(item.image))
        names = about(item) if about else "\n".join(readable(classes[label]) for label in item.labels) or "no class"
        grid[row, 0].set_ylabel(names, rotation=0, ha="right", va="center", labelpad=8, parse_math=False)
        for version in range(versions):
            epoch, copy = divmod(version, repeats)
            sample = {name: part[row * repeats + copy].numpy() for name, part in batches[epoch].items()}
            _draw(grid[row, 1 + version], sample["images"])
            if dataset.augmentation.mixes and "labels" in sample:
                grid[row, 1 + version].set_xlabel(_shares(sample["labels"], classes), fontsize=7, parse_math=False)
    grid[0, 0].set_title("as prepared", fontsize=9)
    for version, axes in enumerate(grid[0, 1:]):
        epoch, copy = divmod(version, repeats)
        axes.set_title(f"epoch {epoch + 1}" + (f", copy {copy + 1}" if repeats > 1 else ""), fontsize=9)
    return figure


@styled
def version_sheet(
    draw: Callable[[Axes, int, int | None], None], names: Sequence[str], image_size: tuple[int, int], *, versions: int = 5
) -> Figure:
    """Draw a row per item: the item as prepared, then as augmented in ``versions`` epochs.

    Args:
        draw: draws the item of an index into axes, in an epoch, or as prepared for None.
        names: the names of the items.
        image_size: height and width of the model's input.
        versions: the number of epochs.
    """
    height, width = image_size
    size = ((1 + versions) * (HEIGHT * width / height + 0.1) + 1.6, len(names) * (HEIGHT + 0.1) + 0.3)
    figure, grid = canvas(*size, len(names), 1 + versions)
    for number, (row, name) in enumerate(zip(grid, names, strict=True)):
        for axes, epoch in zip(row, [None, *range(versions)], strict=True):
            draw(axes, number, epoch)
            bare(axes)
        short = short_path(name, 20)
        row[0].set_ylabel(short, rotation=0, ha="right", va="center", labelpad=8, fontsize=8, parse_math=False)
    for axes, title in zip(grid[0], ["as prepared", *(f"epoch {epoch + 1}" for epoch in range(versions))], strict=True):
        axes.set_title(title, fontsize=9)
    return figure


def _draw(axes: Axes, pixels: np.ndarray) -> None:
    """Draw pixels, uint8 (C, H, W)."""
    style: Any = {"cmap": "gray", "vmin": 0, "vmax": 255} if len(pixels) == 1 else {}
    axes.imshow(to_picture(pixels), interpolation="nearest" if max(pixels.shape[1:]) < SMALL else "antialiased", **style)
    bare(axes)


def _shares(targets: np.ndarray, classes: list[str]) -> str:
    """Return the two largest classes in a mixed target (classes,) with their fractions, one line each."""
    largest = [label for label in np.argsort(-targets, kind="stable")[:2] if targets[label] >= 0.005]
    return "\n".join(f"{readable(classes[label])} {100 * targets[label]:.0f} %" for label in largest)
