"""A figure of images in training, with their masks laid over them."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vitrail.data.images.plan import to_picture
from vitrail.study.page.figures import readable
from vitrail.study.page.samples import version_sheet
from vitrail.tasks.segmentation.learning.crops import SegmentationDataset

OPACITY = 0.55
"""Opacity of the masks."""
MOST_NAMED = 24
"""Largest number of classes in the legend."""


def mask_sheet(dataset: SegmentationDataset, *, versions: int = 5) -> Figure:
    """Draw a row per image: the whole image, then its crops in ``versions`` epochs, with the classes' colours laid over them.

    Void pixels show the image; padding has the mean colour.
    """
    whole = SegmentationDataset(dataset.items, dataset.preparation, dataset.coding)
    colors = np.array([*dataset.coding.colors, (0, 0, 0)], np.float32) / 255
    shown = np.zeros(len(colors), bool)

    def draw(axes: Axes, number: int, epoch: int | None) -> None:
        batch = whole[0, number] if epoch is None else dataset[epoch, number]
        picture, mask = to_picture(batch["images"][0].numpy()), batch["masks"][0].numpy()
        classes = np.minimum(mask, len(colors) - 1)
        shown[classes] = True
        opacity = np.where(classes < len(colors) - 1, OPACITY, 0).astype(np.float32)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255)
        axes.imshow(np.dstack([colors[classes], opacity]), interpolation="nearest")

    names = [dataset.name(number) for number in range(len(dataset))]
    figure = version_sheet(draw, names, dataset.preparation.image_size, versions=versions)
    named = np.flatnonzero(shown[:-1])[:MOST_NAMED].tolist()
    handles = [Patch(color=tuple(colors[place]), label=readable(dataset.coding.classes[place])) for place in named]
    figure.legend(handles=handles, loc="outside lower center", ncols=8, fontsize=8, frameon=False)
    return figure
