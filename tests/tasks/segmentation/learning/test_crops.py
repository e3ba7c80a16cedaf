"""Crops of images and masks stay together, keep their aspect, and avoid a single class."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import maximum_filter, minimum_filter

from masked import COLORS, drawn, picture_of, write_masks
from vitrail.data.images.augment import Augmentation, SampleGenerator, scaled_crop
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError, DataError
from vitrail.tasks.segmentation.files.coding import Coding, Row
from vitrail.tasks.segmentation.files.sources import open_masks
from vitrail.tasks.segmentation.learning.crops import SegmentationDataset, _is_filled

CODING = Coding.of([Row(str(value), value) for value in range(3)])
CROPS = Augmentation(crop="scaled")
PLANS = 1000


def prepared(height=32, width=32, **fields):
    return Preparation.standard((height, width), mean=(0.0,) * 3, std=(1.0,) * 3, **fields)


def items(count=4, size=(48, 36)):
    return [Item(f"{n}.png", picture_of(drawn(n, size)), (), Image.fromarray(drawn(n, size))) for n in range(count)]


def disc(width, height, random):
    """A mask of one large disc: nothing is thinner than a pixel when it is made four times smaller."""
    y, x = np.mgrid[:height, :width] + 0.5
    return np.hypot(x - random.uniform(0.2, 0.8) * width, y - random.uniform(0.2, 0.8) * height) < 0.3 * min(width, height)


def near_border(mask):
    """Which pixels of a mask have another value at most a pixel away, or the end of the mask: one may be there."""
    return minimum_filter(mask, 3, mode="constant", cval=-1) != maximum_filter(mask, 3, mode="constant", cval=-1)


@pytest.mark.parametrize("seed", range(10))
def test_an_image_that_is_its_own_mask_stays_with_it_in_10000_plans(seed):
    """Pixels and mask differ at borders alone, by a pixel: there one is interpolated, and the other is the nearest."""
    random = np.random.default_rng(seed)
    preparation = Preparation.standard((20, 24), 1, mean=(0.0,), std=(1.0,))
    known = borders = different = 0
    for number in range(PLANS):
        width, height = random.integers(60, 100, 2).tolist()
        mask = disc(width, height, random)
        picture = Image.fromarray(mask.astype(np.uint8) * 255)
        crop = ("scaled", "scaled", "resized", "pad", "none")[number % 5]
        augmentation = Augmentation(
            crop=crop, min_scale=0.4, horizontal_flip=0.5, vertical_flip=0.5, rotation=random.choice([0, 45]), brightness=0.1
        )
        plan = augmentation.plan(picture.size, preparation, SampleGenerator(seed, 0, number))
        pixels, moved = plan.pixels(picture)[0] > 110, plan.mask(mask.astype(np.uint8), 255)
        border = near_border(moved)
        differs = pixels != (moved == 1)
        assert not (differs & ~border).any(), (augmentation, plan)
        known += int((moved != 255).sum())
        borders += int((border & (moved != 255)).sum())
        different += int((differs & (moved != 255)).sum())
    assert different < 0.025 * borders  # half a pixel of displacement would make 6 % of them different
    assert borders < 0.35 * known and known > 0.5 * PLANS * 480


@pytest.mark.parametrize(("size", "scale"), [((90, 60), 0.3), ((90, 60), 1.0), ((40, 200), 0.77), ((17, 13), 2.0), ((1, 1), 0.5)])
def test_a_crop_is_not_squeezed_and_is_padded_where_the_image_ends(size, scale):
    preparation = prepared(32, 48)
    for number in range(20):
        frame = scaled_crop(size, preparation, scale, SampleGenerator(0, 0, number))
        assert frame.result == (48, 32)
        picture = Image.new("RGB", size, (200, 200, 200))
        pixels = np.asarray(frame(picture))
        scaled = [max(1, round(scale * side)) for side in size]
        shown = [min(side, crop) for side, crop in zip(scaled, (48, 32), strict=True)]
        assert (pixels == 200).all(-1).sum() == shown[0] * shown[1] and ((pixels == 200) | (pixels == 0)).all()
        left, top, right, bottom = frame.part
        assert 0 <= left < right <= size[0] + 1e-9 and 0 <= top < bottom <= size[1] + 1e-9
        aspect = ((right - left) / shown[0]) / ((bottom - top) / shown[1])
        assert abs(aspect - (size[0] / scaled[0]) / (size[1] / scaled[1])) < 1e-9


def test_a_crop_shows_the_pixels_of_a_resized_image():
    picture, preparation = picture_of(drawn(3, (64, 48))), prepared(24, 24)
    for number in range(10):
        frame = scaled_crop(picture.size, preparation, 0.75, SampleGenerator(1, 0, number))
        whole = np.asarray(picture.resize((48, 36), Image.Resampling.BILINEAR)).astype(int)
        left, top = round(frame.part[0] * 0.75), round(frame.part[1] * 0.75)
        cut = whole[top : top + 24, left : left + 24]
        assert np.abs(np.asarray(frame(picture)).astype(int) - cut).max() <= 1


def test_scales_are_spread_over_their_range():
    augmentation = Augmentation(crop="scaled", min_scale=0.5, max_scale=2)
    pitches = []
    for number in range(400):
        frame = augmentation.frame((200, 200), prepared(), SampleGenerator(0, 0, number))
        pitches.append(frame.size[0] / (frame.part[2] - frame.part[0]))
    assert 0.5 <= min(pitches) < 0.55 and 1.95 < max(pitches) <= 2 and 1.2 < np.mean(pitches) < 1.3


def test_a_batch_depends_on_seed_epoch_and_index_alone():
    data = SegmentationDataset(items(), prepared(), CODING, CROPS, 5)
    batch = data.batch([(2, 1), (0, 3)])
    assert {name: (part.dtype, tuple(part.shape)) for name, part in batch.items()} == {
        "images": (torch.uint8, (2, 3, 32, 32)),
        "masks": (torch.int64, (2, 32, 32)),
        "number": (torch.int64, (2,)),
        "sizes": (torch.int64, (2, 2)),
    }
    assert batch["number"].tolist() == [1, 3] and batch["sizes"].tolist() == [[32, 32]] * 2
    again = SegmentationDataset(items(), prepared(), CODING, CROPS, 5)[2, 1]
    assert all(torch.equal(part[:1], again[name]) for name, part in batch.items())
    assert not torch.equal(SegmentationDataset(items(), prepared(), CODING, CROPS, 6)[2, 1]["images"], again["images"])
    assert not torch.equal(data[3, 1]["images"], again["images"])


def test_colors_show_the_classes_that_the_mask_names():
    """The images of `masked` are drawn in the colours of their classes."""
    data = SegmentationDataset(items(), prepared(), CODING, CROPS, 0)
    for epoch in range(20):
        batch = data.batch([(epoch, n) for n in range(4)])
        for image, mask in zip(batch["images"].numpy(), batch["masks"].numpy(), strict=True):
            for value, color in enumerate(COLORS):
                seen = image[:, ~near_border(mask) & (mask == value)]
                assert np.abs(seen - np.array(color)[:, None]).max(initial=0) <= 1


def test_crops_of_one_class_are_drawn_again():
    mask = np.zeros((100, 400), np.uint8)
    mask[:, 380:] = 1  # few crops show it
    item = Item("a", picture_of(mask), (), Image.fromarray(mask))
    data = SegmentationDataset([item], prepared(), CODING, Augmentation(horizontal_flip=0), 0)
    shares = np.array([(data[epoch, 0]["masks"] == 1).float().mean() for epoch in range(200)])
    once = np.array([scaled_crop((400, 100), prepared(), 1.0, SampleGenerator(0, epoch, 0)).part[0] for epoch in range(200)])
    mixed = (shares > 0.25) & (shares < 0.75)
    alone = ((once + 32 - 380) / 32 > 0.25).mean()
    assert mixed.mean() > 3 * alone and mixed.mean() > 0.2  # one of ten crops is enough
    plain = Item("a", picture_of(mask * 0), (), Image.fromarray(mask * 0))
    assert not SegmentationDataset([plain], prepared(), CODING, CROPS, 0)[0, 0]["masks"].remainder(255).any()  # it ends


@pytest.mark.parametrize(
    ("pixels", "filled"),
    [((80, 20, 0), True), ((70, 30, 0), False), ((7, 3, 90), False), ((8, 2, 90), True), ((0, 0, 100), True)],
)
def test_the_fraction_of_a_class_is_of_the_known_pixels(pixels, filled):
    assert _is_filled(np.repeat([0, 1, 255], pixels), 255) is filled


def test_whole_images_keep_their_size_and_share_batches_with_others_of_it():
    sizes = [(48, 36), (60, 20), (48, 36), (60, 20), (48, 36)]
    several = [items(n + 1, size)[n] for n, size in enumerate(sizes)]
    data = SegmentationDataset(several, prepared(64, 64), CODING)
    assert data.batches(0, 2, shuffle=False) == [[(0, 0), (0, 2)], [(0, 4)], [(0, 1), (0, 3)]] and data.count_batches(2) == 3
    batch = data.batch([(0, 1), (0, 3)])
    assert batch["sizes"].tolist() == [[20, 60]] * 2 and batch["number"].tolist() == [1, 3]
    for place, number in enumerate((1, 3)):
        assert np.array_equal(batch["masks"][place].numpy(), drawn(number, (60, 20)))
        assert np.array_equal(batch["images"][place].permute(1, 2, 0).numpy(), np.asarray(several[number].image))
    seen = [n for loaded in EpochLoader(data, 2, shuffle=False).epoch() for n in loaded["number"].tolist()]
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_a_batch_of_large_images_has_no_more_pixels_than_one_of_crops():
    data = SegmentationDataset(items(6), prepared(32, 32), CODING)  # 36×48 pixels each
    assert [len(keys) for keys in data.batches(0, 4, shuffle=False)] == [2, 2, 2]
    assert [len(keys) for keys in data.batches(0, 1, shuffle=False)] == [1] * 6


def test_masks_do_not_stay_in_memory(tmp_path):
    data = open_masks(write_masks(tmp_path))
    samples = SegmentationDataset(data.split("train"), prepared(), data.coding, CROPS)
    before = samples[0, 0]["masks"]
    Image.fromarray(np.zeros((36, 48), np.uint8)).save(data.split("train")[0].mask)
    assert before.remainder(255).any() and not samples[0, 0]["masks"].remainder(255).any()


def test_more_than_255_classes_have_another_void():
    coding = Coding.of([Row(str(value), value) for value in range(300)])
    mask = Image.fromarray(np.full((10, 10), 299, np.uint16))
    batch = SegmentationDataset([Item("a", Image.new("RGB", (10, 10)), (), mask)], prepared(16, 16), coding, Augmentation(), 0)[
        0, 0
    ]
    assert batch["masks"].unique().tolist() == [299, 65535]


@pytest.mark.parametrize("mask", [None, Image.new("L", (36, 48)), Image.new("L", (48, 36), 9)])
def test_a_wrong_mask_is_named_by_its_image(mask):
    data = SegmentationDataset([Item("cat.jpg", picture_of(drawn(0)), (), mask)], prepared(), CODING)
    with pytest.raises(DataError) as refused:
        data[0, 0]
    assert "cat.jpg" in str(refused.value)


@pytest.mark.parametrize("change", [{"crop": "pad"}, {"crop": "resized"}, {"mixup": 1.0}, {"cutmix": 1.0}, {"half_body": 0.1}])
def test_what_does_not_go_with_masks_is_refused(change):
    with pytest.raises(ConfigError):
        SegmentationDataset(items(), prepared(), CODING, Augmentation(**change))
