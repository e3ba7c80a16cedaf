"""Crops of an image: of one decoded image, each with a plan of its own, decided by (seed, epoch, index)."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.tasks.dino.views import CropsDataset, SmallCrops, mask_blocks

SMALL = SmallCrops(5, (8, 8), 0.05)
CROPS = Augmentation(crop="resized", min_area=0.4, horizontal_flip=0)


def ramp(side: int = 64) -> Image.Image:
    """An image whose red is the column and whose green is the row, so that a crop tells where it was."""
    columns, rows = np.meshgrid(np.arange(side), np.arange(side))
    return Image.fromarray(np.stack([4 * columns, 4 * rows, 0 * rows], axis=2).astype(np.uint8))


@pytest.fixture
def crops() -> CropsDataset:
    items = [Item(f"{number}.png", ramp(), 0) for number in range(3)]
    return CropsDataset(items, Preparation.standard((16, 16)), CROPS, 3, small=SMALL)


def areas(views: torch.Tensor) -> list[float]:
    """Return about how much of the image each crop of (V, 3, H, W) shows, by the range of its red and green."""
    spans = [(v[c].max().item() - v[c].min().item()) / (4 * 64) for v in views for c in (0, 1)]
    return [a * b for a, b in zip(spans[::2], spans[1::2], strict=True)]


def test_a_batch_has_two_large_crops_and_the_small_ones(crops):
    batch = crops.batch([(0, 0), (0, 2)])
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {
        "images": (2, 2, 3, 16, 16),
        "small": (2, 5, 3, 8, 8),
    }
    views = batch["images"][0]
    assert not torch.equal(views[0], views[1])
    assert len({view.numpy().tobytes() for view in batch["small"][0]}) == 5


def test_small_crops_show_less_than_large_ones(crops):
    batches = [crops.batch([(epoch, 0)]) for epoch in range(20)]
    large = [area for batch in batches for area in areas(batch["images"][0])]
    small = [area for batch in batches for area in areas(batch["small"][0])]
    assert min(large) > 0.3 and max(small) < 0.4 and min(small) < 0.1  # the outermost pixels of a crop are means


def test_crops_are_decided_by_seed_epoch_and_index(crops):
    again = CropsDataset(crops.items, crops.preparation, CROPS, 3, small=SMALL)
    one, other = crops.batch([(4, 1), (4, 2)]), again.batch([(4, 2)])
    assert all(torch.equal(one[name][1], other[name][0]) for name in one)
    assert not torch.equal(one["small"], crops.batch([(5, 1), (5, 2)])["small"])


def test_an_image_is_decoded_once_for_all_its_crops(crops, monkeypatch):
    read = []
    reduced = Preparation.reduced
    monkeypatch.setattr(
        Preparation, "reduced", lambda self, source, share: read.append(share) or reduced(self, source, share=share)
    )
    crops.batch([(0, 0)])
    assert read == [pytest.approx(0.2)]  # 0.05 of the area at 8 pixels needs no more of the file than 0.2 at 16


def test_without_small_crops_there_are_only_large_ones(crops):
    bare = CropsDataset(crops.items, crops.preparation, CROPS, 3, small=SmallCrops(0, (8, 8), 0.05))
    assert bare.batch([(0, 0)]).keys() == {"images"}


def test_masks_have_the_number_of_patches_that_is_wanted_and_consist_of_blocks():
    random = np.random.default_rng(0)
    alike = []
    for grid in ((14, 14), (3, 7), (1, 9), (2, 2)):
        for count in range(grid[0] * grid[1] + 1):
            mask = mask_blocks(grid, count, random)
            assert mask.shape == grid and mask.dtype == bool and mask.sum() == count
            if grid == (14, 14) and 20 < count < 98:
                alike.append((mask[:, 1:] == mask[:, :-1]).mean())
    assert np.mean(alike) > 0.8  # neighbours of scattered patches are alike in 0.5 to 0.8 of all cases


def test_half_of_the_large_crops_are_masked_where_patches_are_learned():
    items = [Item(f"{number}.png", ramp(), 0) for number in range(3)]
    crops = CropsDataset(items, Preparation.standard((16, 16)), CROPS, 3, small=SMALL, grid=(4, 4))
    plain = CropsDataset(items, Preparation.standard((16, 16)), CROPS, 3, small=SMALL)
    batches = [crops.batch([(epoch, 0), (epoch, 1)]) for epoch in range(60)]
    fractions = torch.cat([batch["masked"] for batch in batches]).float().mean(dim=-1).flatten()
    assert batches[0]["masked"].shape == (2, 2, 16) and batches[0]["masked"].dtype == torch.bool
    assert 0.35 < (fractions > 0).float().mean() < 0.65 and fractions.max() <= 0.5
    assert torch.equal(batches[0]["small"], plain.batch([(0, 0), (0, 1)])["small"])
