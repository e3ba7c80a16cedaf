"""Augmentation is random between samples and certain for each of them."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from vitrail.data.augment import Augmentation, sample_generator
from vitrail.data.preparation import Preparation

STILL = {"horizontal_flip": 0.0, "vertical_flip": 0.0}
EVERY = [
    Augmentation(),
    Augmentation(horizontal_flip=1, vertical_flip=1),
    Augmentation(crop="pad"),
    Augmentation(crop="pad", padding=0),
    Augmentation(crop="resized"),
    Augmentation(crop="resized", min_area=1, max_aspect=1),
]


def picture(width: int = 40, height: int = 30, channels: int = 3) -> Image.Image:
    shape = (height, width, 3) if channels == 3 else (height, width)
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8))


def pixels(augmentation: Augmentation, image: Image.Image, preparation: Preparation, *key: int) -> np.ndarray:
    return augmentation.pixels(image, preparation, sample_generator(*key))


def where_it_looks(augmentation: Augmentation, width: int, height: int, preparation: Preparation, index: int) -> tuple:
    """Left, top, right and bottom of the part of a picture that is kept, read off pixels that hold their coordinates."""
    y, x = np.mgrid[:height, :width]
    rows, columns = preparation.image_size
    boxes = []

    class Watched(Image.Image):
        def resize(self, size, resample=None, box=None, reducing_gap=None):
            assert size == (columns, rows)
            boxes.append(box)
            return Image.new("L", size)

    watched = Watched()
    watched.__dict__.update(Image.fromarray((x + y).astype(np.uint8)).__dict__)
    pixels(augmentation, watched, preparation, 0, 0, index)
    return boxes[0]


@pytest.mark.parametrize("augmentation", EVERY, ids=str)
def test_a_sample_is_fixed_by_seed_epoch_and_index(augmentation):
    preparation = Preparation.standard((16, 24))

    def digest(*key: int) -> str:
        return hashlib.sha256(pixels(augmentation, picture(), preparation, *key).tobytes()).hexdigest()

    assert digest(1, 2, 3) == digest(1, 2, 3)


def test_seed_epoch_and_index_each_change_a_sample():
    augmentation, preparation = Augmentation(crop="resized"), Preparation.standard((16, 16))
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 1, 0), (1, 2, 0), (0, 1, 2)]
    assert len({pixels(augmentation, picture(), preparation, *key).tobytes() for key in keys}) == len(keys)


@pytest.mark.parametrize("augmentation", EVERY, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(40, 30), (24, 16), (5, 3), (1, 1), (1, 90), (90, 1)])
def test_the_shape_is_always_the_models(augmentation, channels, size):
    preparation = Preparation.standard((16, 24), channels)
    image = picture(*size, channels)
    for index in range(3):
        result = pixels(augmentation, image, preparation, 0, 0, index)
        assert result.shape == (channels, 16, 24) and result.dtype == np.uint8 and result.flags.c_contiguous


def test_without_crop_and_flips_it_is_the_plain_preparation():
    preparation = Preparation.standard((16, 24), crop_ratio=0.8)
    for size in ((40, 30), (7, 50)):
        image = picture(*size)
        assert np.array_equal(pixels(Augmentation(**STILL), image, preparation, 0, 0, 0), preparation.pixels(image))


def test_the_whole_area_at_its_own_shape_is_the_plain_resize():
    preparation = Preparation.standard((15, 20))
    whole = Augmentation(crop="resized", min_area=1, max_aspect=1, **STILL)
    assert np.abs(pixels(whole, picture(), preparation, 0, 0, 0).astype(int) - preparation.pixels(picture())).max() <= 1


def test_certain_flips_mirror_the_picture():
    preparation = Preparation.standard((16, 24))
    plain = preparation.pixels(picture())
    across = pixels(Augmentation(horizontal_flip=1), picture(), preparation, 0, 0, 0)
    down = pixels(Augmentation(horizontal_flip=0, vertical_flip=1), picture(), preparation, 0, 0, 0)
    assert np.array_equal(across, plain[:, :, ::-1]) and np.array_equal(down, plain[:, ::-1])


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.5, 1.0])
def test_flips_come_as_often_as_asked_and_independently(probability):
    preparation = Preparation.standard((2, 2), channels=1)
    image = Image.fromarray(np.array([[1, 2], [3, 4]], np.uint8))
    augmentation = Augmentation(horizontal_flip=probability, vertical_flip=probability)
    corners = [int(pixels(augmentation, image, preparation, 0, 0, i)[0, 0, 0]) for i in range(2000)]
    across = np.isin(corners, [2, 4])
    down = np.isin(corners, [3, 4])
    for happened, expected in ((across, probability), (down, probability), (across & down, probability**2)):
        assert abs(happened.mean() - expected) < 4 * np.sqrt(0.25 / 2000)


def test_every_shift_of_the_padded_crop_occurs():
    preparation = Preparation.standard((8, 8), channels=1)
    augmentation = Augmentation(crop="pad", padding=2, **STILL)
    image = Image.new("L", (8, 8))
    image.putpixel((4, 4), 255)
    seen = {tuple(np.argwhere(pixels(augmentation, image, preparation, 0, 0, i)[0] == 255)[0].tolist()) for i in range(600)}
    assert seen == {(y, x) for y in range(2, 7) for x in range(2, 7)}


def test_the_padding_has_the_mean_colour():
    mean = (0.2, 0.4, 0.6)
    preparation = Preparation(image_size=(4, 4), resize_size=(4, 4), mean=mean, std=(1, 1, 1))
    augmentation = Augmentation(crop="pad", padding=4, **STILL)
    black = Image.new("RGB", (4, 4))
    colours = {tuple(p) for i in range(50) for p in pixels(augmentation, black, preparation, 0, 0, i).reshape(3, -1).T.tolist()}
    assert colours == {(0, 0, 0), (51, 102, 153)}
    grey = Preparation.standard((4, 4), channels=1)
    values = {int(v) for i in range(50) for v in pixels(augmentation, Image.new("L", (4, 4)), grey, 0, 0, i).ravel()}
    assert values == {0, 128}


def test_a_padded_crop_keeps_what_it_does_not_shift_out():
    preparation = Preparation.standard((6, 6))
    image = picture(6, 6)
    around = np.full((3, 10, 10), 128, np.uint8)
    around[:, 2:8, 2:8] = np.asarray(image).transpose(2, 0, 1)
    windows = {around[:, y : y + 6, x : x + 6].tobytes() for y in range(5) for x in range(5)}
    augmentation = Augmentation(crop="pad", padding=2, **STILL)
    assert all(pixels(augmentation, image, preparation, 0, 0, i).tobytes() in windows for i in range(50))


@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.floats(0.05, 1),
    st.floats(1, 3),
    st.sampled_from([(16, 16), (16, 24), (30, 10)]),
    st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_the_resized_crop_stays_inside_and_within_its_area(width, height, min_area, max_aspect, size, index):
    augmentation = Augmentation(crop="resized", min_area=min_area, max_aspect=max_aspect)
    left, top, right, bottom = where_it_looks(augmentation, width, height, Preparation.standard(size, 1), index)
    assert -1e-6 <= left < right <= width + 1e-6 and -1e-6 <= top < bottom <= height + 1e-6
    area = (right - left) * (bottom - top)
    assert area <= width * height + 1e-6
    target = size[1] / size[0]
    fits = width / height > target / max_aspect and width / height < target * max_aspect
    if fits and right - left < width - 1e-6 and bottom - top < height - 1e-6 and min(right - left, bottom - top) > 1:
        assert area >= min_area * width * height - 1e-6
        assert target / max_aspect - 1e-6 <= (right - left) / (bottom - top) <= target * max_aspect + 1e-6


def test_the_resized_crop_uses_the_whole_range_of_areas():
    augmentation = Augmentation(crop="resized", min_area=0.25, max_aspect=1)
    preparation = Preparation.standard((16, 16), 1)
    boxes = [where_it_looks(augmentation, 100, 100, preparation, i) for i in range(400)]
    areas = [(r - l) * (b - t) / 10_000 for l, t, r, b in boxes]  # noqa: E741
    assert 0.25 <= min(areas) < 0.27 and 0.98 < max(areas) <= 1
    assert abs(np.mean(areas) - 0.625) < 0.04


@pytest.mark.parametrize("size", [(32, 64), (64, 32)])
def test_the_resized_crop_keeps_the_asked_area_when_the_picture_is_oblong(size):
    augmentation = Augmentation(crop="resized", min_area=0.9, max_aspect=4 / 3)
    boxes = [where_it_looks(augmentation, *size, Preparation.standard((16, 16), 1), i) for i in range(50)]
    assert min((right - left) * (bottom - top) for left, top, right, bottom in boxes) >= 0.9 * 32 * 64 * 0.5


@pytest.mark.parametrize(
    "wrong",
    [{"horizontal_flip": 1.1}, {"vertical_flip": -0.1}, {"padding": -1}, {"min_area": 0}, {"max_aspect": 0.5}, {"crop": "x"}],
    ids=str,
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        Augmentation(**wrong)
