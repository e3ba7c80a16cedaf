"""Figures of people in training, with their joints."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from vitrail.data.images.box_preparation import in_view
from vitrail.data.images.plan import to_picture
from vitrail.data.loading.batches import Key
from vitrail.study.page.samples import version_sheet
from vitrail.tasks.pose.people.dataset import PersonDataset
from vitrail.tasks.pose.study.skeletons import BOLD, draw_people


def people_sheet(dataset: PersonDataset, *, versions: int = 5) -> Figure:
    """Draw a row per person: as prepared, then as augmented in ``versions`` epochs, with the joints."""
    prepared = PersonDataset(dataset.people, dataset.boxes, dataset.skeleton)

    def draw(axes: Axes, number: int, epoch: int | None) -> None:
        axes.imshow(drawn(prepared, (0, number)) if epoch is None else drawn(dataset, (epoch, number)))

    names = [dataset.name(number) for number in range(len(dataset))]
    return version_sheet(draw, names, dataset.preparation.image_size, versions=versions)


def drawn(dataset: PersonDataset, key: Key) -> Image.Image:
    """Draw a sample with the skeleton of its annotated joints inside the crop."""
    sample = {name: part[0].numpy() for name, part in dataset[key].items()}
    picture, joints = to_picture(sample["images"]), sample["joints"]
    shown = (sample["weights"] > 0) & in_view(joints, dataset.preparation.image_size)
    return draw_people(picture, np.where(shown[:, None], joints, np.nan)[None], dataset.skeleton, line=BOLD)
