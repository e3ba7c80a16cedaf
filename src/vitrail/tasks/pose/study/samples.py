"""Figures of people in training, with their joints."""

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vitrail.data.images.box_preparation import in_view
from vitrail.data.images.plan import to_picture
from vitrail.data.loading.batches import Key
from vitrail.study.page.figures import bare, canvas, short_path, styled
from vitrail.tasks.pose.people.dataset import PersonDataset
from vitrail.tasks.pose.study.skeletons import BOLD, draw_people

HEIGHT = 1.9
"""Height of an image on the sheet, in inches."""


@styled
def people_sheet(dataset: PersonDataset, *, versions: int = 5) -> Figure:
    """Draw a row per person: as prepared, then as augmented in ``versions`` epochs, with the joints."""
    prepared = PersonDataset(dataset.people, dataset.boxes, dataset.skeleton)
    high, wide = dataset.preparation.image_size
    size = ((1 + versions) * (HEIGHT * wide / high + 0.1) + 1.6, len(dataset) * (HEIGHT + 0.1) + 0.3)
    figure, grid = canvas(*size, len(dataset), 1 + versions)
    for number, row in enumerate(grid):
        samples = [drawn(prepared, (0, number)), *(drawn(dataset, (epoch, number)) for epoch in range(versions))]
        for axes, sample in zip(row, samples, strict=True):
            axes.imshow(sample)
            bare(axes)
        name = short_path(dataset.name(number), 20)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8, fontsize=8, parse_math=False)
    for axes, title in zip(grid[0], ["as prepared", *(f"epoch {epoch + 1}" for epoch in range(versions))], strict=True):
        axes.set_title(title, fontsize=9)
    return figure


def drawn(dataset: PersonDataset, key: Key) -> Image.Image:
    """Draw a sample with the skeleton of its annotated joints inside the crop."""
    sample = {name: part[0].numpy() for name, part in dataset[key].items()}
    picture, joints = to_picture(sample["images"]), sample["joints"]
    shown = (sample["weights"] > 0) & in_view(joints, dataset.preparation.image_size)
    return draw_people(picture, np.where(shown[:, None], joints, np.nan)[None], dataset.skeleton, line=BOLD)
