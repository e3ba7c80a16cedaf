"""A transform of one's own: what it may return, and whose randomness it uses."""

import random
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import require_sendable, transformed
from vitrail.errors import ConfigError

PREPARATION = Preparation.standard((4, 6))


def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, (9, 8, 3), dtype=np.uint8))


def apply(transform, preparation: Preparation = PREPARATION, seed: int = 0) -> Image.Image | np.ndarray:
    return transformed(transform, picture(), preparation, np.random.default_rng(seed))


def returning(result):
    return lambda image: result


def test_it_gets_the_decoded_picture_and_may_return_another():
    result = apply(lambda image: image.rotate(180))
    assert isinstance(result, Image.Image) and result.tobytes() == picture().rotate(180).tobytes()


def test_a_picture_comes_back_in_the_models_colours():
    assert apply(lambda image: image.convert("L")).mode == "RGB"
    assert apply(lambda image: image, Preparation.standard((4, 6), channels=1)).mode == "L"


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_pixels_of_the_models_size_are_taken_as_they_are(kind):
    pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 6), dtype=np.uint8)
    for given in (pixels, (pixels / 255).astype(np.float32), pixels / 255):
        result = apply(returning(kind(given)))
        assert result.dtype == np.uint8 and np.array_equal(result, pixels)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.full((3, 4, 6), 1.5), "remove the normalization: Vitrail normalizes"),
        (torch.full((3, 4, 6), -0.1), "remove the normalization: Vitrail normalizes"),
        (np.full((3, 4, 6), np.nan), "nan"),
        (np.zeros((4, 6, 3), np.uint8), r"shape \(4, 6, 3\).*\n.*\n.*\(3, 4, 6\)"),
        (np.zeros((1, 4, 6)), "shape"),
        (np.zeros((3, 4, 6), np.int64), "int64"),
        (np.zeros((3, 4, 6), bool), "bool"),
        (None, "NoneType"),
        ([1, 2], "list"),
    ],
    ids=str,
)
def test_anything_else_is_refused_with_what_to_do(result, message):
    with pytest.raises(ConfigError, match=message):
        apply(returning(result))


def draw(image: Image.Image) -> np.ndarray:
    """A number from each of the three generators in the first pixels."""
    pixels = np.zeros((3, 4, 6))
    pixels[:, 0, 0] = random.random(), np.random.rand(), torch.rand(1).item()
    return pixels


def test_randomness_of_python_numpy_and_torch_is_the_samples_own():
    drawn = {seed: apply(draw, seed=seed)[:, 0, 0] for seed in range(20)}
    for seed, values in drawn.items():
        random.seed(5)
        assert np.array_equal(apply(draw, seed=seed)[:, 0, 0], values)
    for generator in range(3):
        assert len({values[generator] for values in drawn.values()}) > 10


@pytest.mark.parametrize("transform", [draw, returning(None), lambda image: 1 / 0], ids=["works", "refused", "fails"])
def test_other_peoples_randomness_is_as_it_was(transform):
    def next_draws() -> tuple:
        return random.random(), np.random.rand(), torch.rand(1).item()

    def seed() -> None:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)

    seed()
    expected = next_draws()
    seed()
    with suppress(ConfigError, ZeroDivisionError):
        apply(transform)
    assert next_draws() == expected


def test_a_transform_that_cannot_be_sent_to_workers_is_refused_where_they_are_not_forked(monkeypatch):
    for method in ("spawn", "forkserver"):
        monkeypatch.setattr("vitrail.data.images.transform.forks", lambda method=method: method == "fork")
        require_sendable(draw)
        with pytest.raises(ConfigError, match=r"data\.workers"):
            require_sendable(lambda image: image)
    monkeypatch.setattr("vitrail.data.images.transform.forks", lambda: True)
    require_sendable(lambda image: image)
