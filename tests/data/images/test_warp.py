"""A turned box of a picture is resized as by the authors' map, and places go where pixels go."""

import numpy as np
import pytest
from PIL import Image
from transformers.models.vitpose.image_processing_pil_vitpose import box_to_center_and_scale, get_warp_matrix, scipy_warp_affine

from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.images.plan import Plan
from vitrail.data.images.reduction import Reduced, Whole
from vitrail.data.images.warp import Warp

HIGH, WIDE = 64, 48
PREPARATION = BoxPreparation.of_size((HIGH, WIDE))
TURNED = [
    (Box(30.3, 20.7, 33.1, 40.2), 0.0),
    (Box(30.3, 20.7, 33.1, 40.2), 30.0),
    (Box(-5, 5, 40, 40), -20.0),
    (Box(70, 40, 45, 48), 170.0),
]


def noise(width: int = 120, height: int = 90) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def smooth(width: int, height: int) -> np.ndarray:
    """A picture without details: waves of 40 pixels and longer."""
    y, x = np.mgrid[:height, :width]
    return np.stack([127 + 100 * np.sin(x / 30 + y / 50 + phase) for phase in (0, 1, 2)], axis=-1).astype(np.uint8)


def shown(warp: Warp, pixels: np.ndarray) -> np.ndarray:
    """int64 (H, W, 3)."""
    return np.asarray(warp(Image.fromarray(pixels)), np.int64)


def of_authors(box: Box, angle: float) -> np.ndarray:
    """The matrix of ViTPose's authors (mmpose's `get_warp_matrix`, by way of transformers); their angle has the other sign."""
    centre, scale = box_to_center_and_scale(box, WIDE, HIGH)
    return get_warp_matrix(-angle, centre * 2, np.array([WIDE - 1.0, HIGH - 1.0]), scale * 200)


def near_centres(warp: Warp, pixels: np.ndarray) -> np.ndarray:
    """Bool (H, W): which pixels of the result show what lies between the centres of the picture's outermost pixels, or is
    outside of the picture by a pixel and more.

    Within half a pixel of the rim Pillow repeats the outermost pixel, where SciPy has black already.
    """
    (a, b, c, d, e, f), (width, height) = warp.back, warp.result
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    depth = [
        np.minimum(place - 0.5, side - 0.5 - place)
        for place, side in ((a * x + b * y + c, pixels.shape[1]), (d * x + e * y + f, pixels.shape[0]))
    ]
    inside = np.minimum(*depth)
    return (inside > 1e-3) | (inside < -0.501)


@pytest.mark.parametrize(("box", "angle"), TURNED)
def test_the_map_is_the_authors_for_unbiased_data_processing(box, angle):
    """They have the centre of the first pixel at 0, and compute in float32."""
    theirs = of_authors(box, angle)
    warp = PREPARATION.warp(box, angle=angle)
    points = np.random.default_rng(1).uniform(-50, 150, (100, 2))
    mine = Plan((120, 90), warp).points(points + 0.5) - 0.5
    assert np.abs(mine - (points @ theirs[:, :2].T + theirs[:, 2])).max() < 1e-3


@pytest.mark.parametrize(("box", "angle"), TURNED)
def test_pixels_are_the_image_processors_of_transformers(box, angle):
    """To one level of 255: Pillow drops what is behind the point, where SciPy rounds. See `near_centres` for the rim."""
    pixels, warp = noise(), PREPARATION.warp(box, angle=angle)
    compared = near_centres(warp, pixels)
    difference = shown(warp, pixels) - scipy_warp_affine(pixels, of_authors(box, angle), (HIGH, WIDE)).astype(np.int64)
    assert np.abs(difference[compared]).max() <= 1 and compared.mean() > 0.95
    assert difference[compared].max() <= 0  # what Pillow drops


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_box_turned_clockwise_shows_the_picture_turned_the_other_way(quarters):
    pixels = noise()
    warp = BoxPreparation.of_size((32, 32), box_scale=1).warp(Box(10, 7, 31, 31), angle=90 * quarters)
    turned = np.rot90(pixels[7:39, 10:42], quarters).astype(np.int64)
    assert np.abs(shown(warp, pixels) - turned).max() <= 1


@pytest.mark.parametrize("left", [10.0, 10.3, 11.7, -20.0])
def test_a_mirrored_picture_gives_the_mirror_image_exactly(left):
    pixels, box = noise(), Box(left, 12.6, 30.2, 50.9)
    mirrored = Box(119 - left - 30.2, *box[1:])  # pixel 0 becomes pixel 119
    assert np.array_equal(shown(PREPARATION.warp(mirrored), pixels[:, ::-1]), shown(PREPARATION.warp(box), pixels)[:, ::-1])


@pytest.mark.parametrize("factor", [2, 3, 5])
def test_a_large_picture_is_first_averaged_over_blocks(factor):
    """A box whose blocks fall on whole pixels of the result: each is the mean of its block."""
    pixels, side = noise(400, 400), 32
    warp = Warp((200, 200), (factor, factor), 0.0, (side, side))
    start = 200 - factor * side // 2
    blocks = pixels[start : start + factor * side, start : start + factor * side].reshape(side, factor, side, factor, 3)
    expected = blocks.mean(axis=(1, 3))
    got = shown(warp, pixels)
    aligned = (start - int(max(0, start - 2 * factor))) % factor == 0
    assert aligned and np.abs(got - expected).max() <= 1


@pytest.mark.parametrize("pitch", [0.7, 3.3])
def test_a_picture_decoded_at_half_its_size_shows_the_same_box(pitch):
    pixels = smooth(400, 300)
    warp = Warp((190.0, 140.0), (pitch, pitch), 12.0, (WIDE, HIGH))
    image = Image.fromarray(pixels)
    reduced = Reduced(image.reduce(2), Whole(image.size, (0.0, 0.0, 200.0, 150.0)))
    plan = Plan(image.size, warp)
    assert np.abs(plan.pixels(reduced).astype(int) - plan.pixels(image)).max() <= 4
    there = Plan((200, 150), warp.of(reduced.whole.inside)).points(np.array([[50.0, 40.0]]))
    assert np.allclose(there, plan.points(np.array([[100.0, 80.0]])))
