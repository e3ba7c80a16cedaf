"""Every operation against its formula in NumPy, and what holds for all of them."""

import colorsys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms.autoaugment import RandAugment, TrivialAugmentWide

from vitrail.data.images.operations import BOTH_WAYS, OPERATIONS, POLICY, randaugment_limits, trivial_limits

FILL = {"RGB": (10, 20, 30), "L": (10,)}
WITHOUT_AMOUNT = {"identity", "auto_contrast", "equalize"}


def picture(mode: str = "RGB", width: int = 16, height: int = 12) -> Image.Image:
    """A slope that uses neither black nor white, steeper to the right, with some noise."""
    slope = 40 + 150 * (np.mgrid[:height, :width].sum(axis=0) / (width + height)) ** 2
    noise = np.random.default_rng(1).integers(0, 30, (height, width, 3))
    pixels = (slope[..., None] * (1, 0.8, 0.6) + noise).astype(np.uint8)
    return Image.fromarray(pixels if mode == "RGB" else np.ascontiguousarray(pixels[..., 0]))


def changed(name: str, amount: float, image: Image.Image) -> np.ndarray:
    return np.asarray(OPERATIONS[name](image, amount, FILL[image.mode]))


def values(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(np.float64)


def near(result: np.ndarray, expected: np.ndarray) -> bool:
    """Up to rounding."""
    return np.abs(result - np.clip(expected, 0, 255)).max() <= 1


def grey(image: Image.Image) -> np.ndarray:
    """Luma of ITU-R 601, (H, W)."""
    return values(image) @ (0.299, 0.587, 0.114) if image.mode == "RGB" else values(image)


both_modes = pytest.mark.parametrize("mode", ["RGB", "L"])


# every operation


@both_modes
@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"auto_contrast", "equalize"}))
def test_no_amount_is_no_change(name, mode):
    assert np.array_equal(changed(name, 0.0, picture(mode)), np.asarray(picture(mode)))


# against formulas


@both_modes
@given(amount=st.floats(-1.5, 3))
@settings(max_examples=40, deadline=None)
def test_brightness_contrast_and_saturation_are_blends(mode, amount):
    image, factor = picture(mode), max(0.0, 1 + amount)
    middle = round(grey(image).mean())
    for name, other in (("brightness", 0.0), ("contrast", middle), ("saturation", grey(image))):
        other = np.broadcast_to(np.asarray(other)[..., None] if mode == "RGB" else other, values(image).shape)
        error = np.abs(changed(name, amount, image) - np.clip(other + factor * (values(image) - other), 0, 255)).max()
        assert error <= 1 + abs(factor - 1)  # the other picture is rounded, too


@both_modes
@pytest.mark.parametrize("amount", [-1.0, -0.4, 0.7])
def test_sharpness_goes_away_from_the_smoothed_picture(mode, amount):
    image = picture(mode)
    around = values(image)
    smooth = around.copy()
    total = sum(np.roll(around, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)) + 4 * around
    smooth[1:-1, 1:-1] = (total / 13)[1:-1, 1:-1]
    error = np.abs(changed("sharpness", amount, image) - np.clip(smooth + (1 + amount) * (around - smooth), 0, 255))
    assert error.max() <= 1 + abs(amount)


@both_modes
@pytest.mark.parametrize(("amount", "bits"), [(0, 8), (1, 7), (2.6, 5), (4, 4), (6, 2), (7, 1), (40, 1)])
def test_posterize_keeps_the_highest_bits(mode, amount, bits):
    step = 2 ** (8 - bits)
    assert np.array_equal(changed("posterize", amount, picture(mode)), np.asarray(picture(mode)) // step * step)


@both_modes
@pytest.mark.parametrize(("amount", "threshold"), [(0, 256), (0.25, 192), (0.5, 128), (1, 0), (3, 0)])
def test_solarize_inverts_the_brightest(mode, amount, threshold):
    pixels = np.asarray(picture(mode))
    assert np.array_equal(changed("solarize", amount, picture(mode)), np.where(pixels < threshold, pixels, 255 - pixels))


@both_modes
def test_auto_contrast_stretches_every_channel(mode):
    pixels = values(picture(mode))
    low, high = pixels.min(axis=(0, 1)), pixels.max(axis=(0, 1))
    assert near(changed("auto_contrast", 0, picture(mode)), (pixels - low) * 255 / (high - low))


def test_equalize_makes_values_equally_frequent():
    pixels = (np.arange(1024).reshape(32, 32) / 1024) ** 3 * 200
    result = changed("equalize", 0, Image.fromarray(pixels.astype(np.uint8)))
    ranks = np.searchsorted(np.sort(pixels.astype(np.uint8).ravel()), pixels.astype(np.uint8)) / 1024 * 255
    assert np.abs(result - ranks).max() <= 255 * 0.13  # a third of the picture has the value 0 or 1
    assert np.abs(np.quantile(result, (0.5, 0.75)) - (127, 191)).max() < 6


@both_modes
def test_rotation_is_anticlockwise_about_the_centre(mode):
    image = picture(mode, 12, 12)
    for quarters in (-1, 1, 2):
        assert np.array_equal(changed("rotate", 90 * quarters, image), np.rot90(np.asarray(image), quarters))
    corner = changed("rotate", 45, image)[0, 0]
    assert np.array_equal(np.atleast_1d(corner), FILL[mode])


@both_modes
@given(x=st.integers(-20, 20), y=st.integers(-20, 20))
@settings(max_examples=40, deadline=None)
def test_translation_moves_right_and_down_and_fills(mode, x, y):
    pixels = np.asarray(picture(mode))
    padded = np.full((52, 56, *pixels.shape[2:]), FILL[mode] if mode == "RGB" else FILL[mode][0], np.uint8)
    padded[20:32, 20:36] = pixels
    across = changed("translate_x", x, picture(mode))
    down = changed("translate_y", y, picture(mode))
    assert np.array_equal(across, padded[20:32, 20 - x : 36 - x]) and np.array_equal(down, padded[20 - y : 32 - y, 20:36])


def test_shearing_moves_rows_by_their_distance_from_the_middle():
    pixels = np.asarray(picture("L", 12, 4))
    result = changed("shear_x", 2, picture("L", 12, 4))  # the rows are -1.5, -0.5, 0.5 and 1.5 from the middle
    for row, moved in enumerate((3, 1, -1, -3)):
        expected = np.full(12, 10)
        expected[max(0, moved) : 12 + min(0, moved)] = pixels[row, max(0, -moved) : 12 - max(0, moved)]
        assert np.array_equal(result[row], expected)
    upright = Image.fromarray(np.ascontiguousarray(pixels.T))
    assert np.array_equal(changed("shear_y", 2, upright), result.T)


@pytest.mark.parametrize("amount", [-0.5, -0.2, 0.1, 1 / 3, 0.5])
def test_hue_turns_the_colour_circle(amount):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    expected = np.empty((8, 8, 3))
    for place in np.ndindex(8, 8):
        hue, saturation, value = colorsys.rgb_to_hsv(*(values(image)[place] / 255))
        expected[place] = np.multiply(colorsys.hsv_to_rgb((hue + amount) % 1, saturation, value), 255)
    assert np.abs(changed("hue", amount, image) - expected).max() <= 12  # hue and saturation have 8 bits between


# the two policies


def test_the_policies_choose_from_fourteen_operations():
    assert len(POLICY) == 14
    for limits in (randaugment_limits(10, 20), trivial_limits(10, 20)):
        assert limits.keys() == POLICY.keys() - WITHOUT_AMOUNT


THEIRS = {
    "Color": "saturation",
    "ShearX": "shear_x",
    "ShearY": "shear_y",
    "TranslateX": "translate_x",
    "TranslateY": "translate_y",
}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (randaugment_limits(60, 40), RandAugment()._augmentation_space(31, (40, 60))),
        (trivial_limits(60, 40), TrivialAugmentWide()._augmentation_space(31)),
    ],
    ids=["randaugment", "trivial"],
)
def test_the_limits_are_torchvisions(ours, theirs):
    found = {THEIRS.get(name, name.lower()): (amounts, signed) for name, (amounts, signed) in theirs.items()}
    for name, limit in ours.items():
        amounts, signed = found[name]
        if name == "posterize":  # theirs are the bits that stay, ours those that go
            amounts = 8 - amounts
        if name == "solarize":  # theirs are thresholds of 0…255, ours the share of the scale above
            amounts = 1 - amounts / 255
        assert limit == pytest.approx(amounts.max().item()) and signed == (name in BOTH_WAYS), name


def test_translation_follows_the_size_in_one_policy_and_stays_inside_in_the_other():
    assert randaugment_limits(331, 662)["translate_x"] == pytest.approx(150)
    assert randaugment_limits(331, 662)["translate_y"] == pytest.approx(300)
    assert [trivial_limits(side, 224)["translate_x"] for side in (8, 32, 224)] == [8, 32, 32]
    assert [trivial_limits(224, side)["translate_y"] for side in (8, 32, 224)] == [8, 32, 32]
