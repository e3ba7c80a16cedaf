"""A mask goes where its image goes, from the file to the batch."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.decode import mask_image
from vitrail.data.images.plan import Plan
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.targets import Arrays
from vitrail.errors import ConfigError

LEVELS = np.array([10, 80, 180, 250], np.uint8)
"""The grey of each class; where there is no image it is 128, and the mask's value 255."""
PREPARATION = Preparation.standard((40, 52), 3, 0.9)
TURNED = {1: lambda pixels: pixels, 6: np.rot90, 3: lambda pixels: pixels[::-1, ::-1], 5: lambda pixels: pixels.T}
"""How an upright image is stored, by its EXIF orientation."""


class Masks:
    """The item's mask, transformed by the plan of its image."""

    mixable = False

    def __call__(self, item: Item, plan: Plan, random: np.random.Generator) -> Arrays:
        return {"masks": plan.mask(np.asarray(mask_image(item.mask)))}


def classes_of(width: int, height: int) -> np.ndarray:
    """Cells around random points, each of one of four classes, uint8 (H, W)."""
    random = np.random.default_rng(0)
    points = random.uniform(0, 1, (12, 2)) * (width, height)
    y, x = np.mgrid[:height, :width]
    nearest = ((x[..., None] - points[:, 0]) ** 2 + (y[..., None] - points[:, 1]) ** 2).argmin(axis=-1)
    return (nearest % 4).astype(np.uint8)


def file_of(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def indexed(classes: np.ndarray) -> Image.Image:
    """Classes as indices of a palette whose colors say something else."""
    image = Image.fromarray(classes)
    image.putpalette([value for _ in range(256) for value in (7, 7, 7)])
    return image


def item_of(width: int, height: int, kind: str = "PNG", orientation: int = 1, name: str = "a") -> Item:
    """An image that is its own mask."""
    classes = classes_of(width, height)
    stored, exif = Image.fromarray(np.ascontiguousarray(TURNED[orientation](LEVELS[classes]))).convert("RGB"), Image.Exif()
    exif[0x0112] = orientation
    return Item(name, file_of(stored, kind, exif=exif), 0, mask=file_of(indexed(classes)))


def inside(mask: np.ndarray) -> np.ndarray:
    """The pixels that are no border: those with eight neighbours like themselves."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(mask, 1, constant_values=-1), (3, 3))
    return (windows == mask[..., None, None]).all(axis=(2, 3))


@pytest.mark.parametrize(
    "change",
    [
        {"crop": "none", "vertical_flip": 0.5},
        {"crop": "pad", "padding": 9, "vertical_flip": 0.5},
        {"crop": "resized", "min_area": 0.3},
        {"crop": "scaled", "min_scale": 0.5, "max_scale": 1.5},
        {"crop": "resized", "min_area": 0.5, "rotation": 60},
        {"crop": "pad", "padding": 6, "rotation": 180},
        {"crop": "none", "rotation": 15, "vertical_flip": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "image",
    [
        {"width": 120, "height": 83},
        {"width": 60, "height": 97},
        {"width": 900, "height": 703, "kind": "JPEG", "orientation": 6},
        {"width": 703, "height": 900, "kind": "JPEG", "orientation": 5},
        {"width": 120, "height": 83, "orientation": 3},
    ],
    ids=str,
)
def test_an_image_that_is_its_own_mask_stays_with_it_but_for_a_pixel_at_borders(image, change):
    data = ImageDataset([item_of(**image)], PREPARATION, Augmentation(**change), 1, targets=Masks())
    greys, values = np.array([*LEVELS, 128]), np.array([0, 1, 2, 3, 255])
    shown = set()
    for epoch in range(8):
        batch = data[epoch, 0]
        pixels, mask = batch["images"][0, 0].numpy().astype(int), batch["masks"][0].numpy()
        nearest = values[np.abs(pixels[..., None] - greys).argmin(axis=-1)]
        clear = inside(mask)
        assert clear.mean() > 0.5 and (nearest == mask)[clear].all()
        shown |= set(mask[clear].tolist())
    assert shown >= {0, 1, 2, 3}


def test_operations_on_colors_and_erasing_leave_a_mask():
    colors = {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.5, "erasing": 1.0}
    plain, changed = (
        ImageDataset([item_of(60, 40)], PREPARATION, Augmentation(crop="pad", **more), 1, targets=Masks())
        for more in ({}, colors)
    )
    for epoch in range(4):
        before, after = plain[epoch, 0], changed[epoch, 0]
        assert torch.equal(before["masks"], after["masks"]) and not torch.equal(before["images"], after["images"])


def test_targets_that_cannot_be_mixed_do_not_go_with_mixed_images():
    with pytest.raises(ConfigError, match="cannot be mixed"):
        ImageDataset([item_of(60, 40)], PREPARATION, Augmentation(mixup=0.5), targets=Masks())
