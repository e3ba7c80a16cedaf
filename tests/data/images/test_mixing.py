"""Mixup and CutMix: pixels as their formulas say, targets as the pixels are shared."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.data.images import mixing

EYE = np.eye(5, dtype=np.float32)


def images(count: int = 5, height: int = 8, width: int = 6, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, channels, height, width), dtype=np.uint8)


def flat(count: int, height: int, width: int) -> np.ndarray:
    """Images of one value each: 0, 1, 2, …"""
    return np.ones((count, 1, height, width), np.uint8) * np.arange(count, dtype=np.uint8)[:, None, None, None]


def randoms(count: int = 5, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, i)) for i in range(count)]


def mix(pixels, targets, randoms, *, step=1, **alphas):
    """A batch mixed with itself, each image with the one ``step`` places on."""
    places = mixing.partners(len(pixels), step)
    if not len(places):
        return pixels, targets
    batch = {"images": pixels, "labels": targets}
    mixed = mixing.mix(batch, {name: array[places] for name, array in batch.items()}, randoms, **alphas)
    assert list(mixed) == ["images", "labels"]
    return mixed["images"], mixed["labels"]


def certain(weight: float, *, draw: float = 0.0, place: int = 0) -> SimpleNamespace:
    """Randomness that always draws the same."""
    return SimpleNamespace(beta=lambda a, b: weight, random=lambda: draw, integers=lambda size: place)


@pytest.mark.parametrize("step", [1, 2])
def test_mixup_is_the_weighted_mean_of_an_image_and_a_later_one(step):
    pixels, weights = images(), [np.random.default_rng((0, i)).beta(0.8, 0.8) for i in range(5)]
    mixed, targets = mix(pixels, EYE, randoms(), mixup=0.8, cutmix=0, step=step)
    for i, weight in enumerate(weights):
        other = (i + step) % 5
        expected = weight * pixels[i] + (1 - weight) * pixels[other].astype(np.float64)
        assert np.abs(mixed[i] - expected).max() <= 0.5 + 1e-4
        assert targets[i] == pytest.approx(weight * EYE[i] + (1 - weight) * EYE[other], abs=1e-6)


def test_cutmix_puts_a_rectangle_of_the_later_image_at_the_same_place():
    pixels = images(2, 8, 6)
    mixed, targets = mix(pixels, EYE[:2], [certain(0.75, place=4)] * 2, mixup=0, cutmix=1)  # half of each side
    expected = pixels.copy()
    expected[0, :, 2:6, 3:6] = pixels[1, :, 2:6, 3:6]
    expected[1, :, 2:6, 3:6] = pixels[0, :, 2:6, 3:6]
    assert np.array_equal(mixed, expected)
    assert targets[0] == pytest.approx([0.75, 0.25, 0, 0, 0]) and targets[1] == pytest.approx([0.25, 0.75, 0, 0, 0])


@given(
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from([1e-6, 0.2, 1, 50]),
    st.integers(0, 99),
    st.integers(1, 7),
)
@settings(max_examples=100, deadline=None)
def test_cutmix_targets_are_the_exact_shares_of_the_pixels(count, height, width, alpha, seed, step):
    targets = np.eye(count, dtype=np.float32)
    mixed, targets = mix(flat(count, height, width), targets, randoms(count, seed), mixup=0, cutmix=alpha, step=step)
    shares = [[(image == value).mean() for value in range(count)] for image in mixed]
    assert targets == pytest.approx(np.array(shares), abs=1e-6)


@pytest.mark.parametrize(("mixup", "cutmix"), [(1, 0), (0, 1), (0.5, 0.5), (1e-9, 0), (0, 1e-9), (100, 100)])
def test_kinds_and_shapes_stay_and_shares_are_whole(mixup, cutmix):
    pixels = images()
    before = pixels.copy()
    mixed, targets = mix(pixels, EYE, randoms(), mixup=mixup, cutmix=cutmix)
    assert mixed.shape == pixels.shape and mixed.dtype == np.uint8
    assert targets.shape == EYE.shape and targets.dtype == np.float32
    assert np.allclose(targets.sum(axis=1), 1) and targets.min() >= 0
    assert np.array_equal(pixels, before)


def test_with_both_each_sample_draws_one_of_them():
    pixels = flat(2, 16, 16) * 200
    mixed, _ = mix(np.tile(pixels, (200, 1, 1, 1)), np.tile(EYE[:2], (200, 1)), randoms(400), mixup=1, cutmix=1)
    one_value = np.array([len(np.unique(image)) == 1 for image in mixed])  # mixed up, or cut by nothing or all
    between = np.array([not np.isin(image, [0, 200]).any() for image in mixed])
    assert 150 < between.sum() < 250 and 0 <= (one_value & ~between).sum() < 60
