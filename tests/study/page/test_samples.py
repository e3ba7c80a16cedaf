"""Pictures of augmentation: the right images, versions and captions at the right places."""

import numpy as np
import pytest

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.targets import class_targets
from vitrail.study.page.samples import augmentation_sheet

CLASSES = ["ant", "bee", "a very long name of a class indeed"]


def dataset(augmentation: Augmentation, *, channels: int = 3, multi_label: bool = False, size=(8, 8)) -> ImageDataset:
    random = np.random.default_rng(0)
    labels = [(0, 1), (), (2,)] * 3 if multi_label else [0, 1, 2] * 3
    items = [Item(str(i), random.integers(0, 256, (10, 10, 3), dtype=np.uint8), label) for i, label in enumerate(labels)]
    targets = class_targets(3, shares=multi_label or augmentation.mixes)
    return ImageDataset(items, Preparation.standard(size, channels), augmentation, 1, targets=targets)


def cells(figure) -> np.ndarray:
    """Axes by row and column."""
    rows = figure.axes[0].get_gridspec().nrows
    return np.array(figure.axes).reshape(rows, -1)


def shown(axes) -> np.ndarray:
    """What a cell shows, as the model takes it: (C, H, W)."""
    pixels = np.asarray(axes.images[0].get_array())
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_row_shows_the_prepared_image_and_then_what_training_makes_of_it(channels):
    data = dataset(Augmentation(crop="pad", policy="trivial"), channels=channels)
    grid = cells(augmentation_sheet(data, [4, 2], CLASSES, versions=3))
    assert grid.shape == (2, 4)
    for row, index in enumerate([4, 2]):
        assert np.array_equal(shown(grid[row, 0]), data.preparation.pixels(data.items[index].image))
        for epoch in range(3):
            assert np.array_equal(shown(grid[row, 1 + epoch]), data[epoch, index]["images"][0])
    assert [axes.get_title() for axes in grid[0]] == ["as prepared", "epoch 1", "epoch 2", "epoch 3"]
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["bee", "a very long nam…"]
    assert {axes.get_xlabel() for axes in grid.flat} == {""}


def test_mixed_images_say_of_what():
    data = dataset(Augmentation(cutmix=1.0, mixup=1.0))
    grid = cells(augmentation_sheet(data, [0, 1, 2], CLASSES, versions=4))
    for epoch in range(4):
        batch = data.batch([(epoch, index) for index in (0, 1, 2)])
        images, targets = batch["images"], batch["labels"]
        for row in range(3):
            assert np.array_equal(shown(grid[row, 1 + epoch]), images[row])
            said = grid[row, 1 + epoch].get_xlabel().splitlines()
            for line, share in zip(said, sorted(targets[row].tolist(), reverse=True), strict=False):
                assert line.endswith(f" {100 * share:.0f} %")
            assert said[0].split()[0] == CLASSES[int(targets[row].argmax())].split()[0]
    assert grid[0, 0].get_xlabel() == ""
