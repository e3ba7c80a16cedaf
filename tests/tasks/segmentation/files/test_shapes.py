"""Polygons and run-length codes, against their definitions and pycocotools."""

import numpy as np
import pytest
from matplotlib.path import Path
from PIL import Image
from pycocotools import mask as peer
from scipy.ndimage import binary_dilation, binary_erosion

from vitrail.data.images.decode import mask_image
from vitrail.tasks.segmentation.files.shapes import Drawing, Polygons, Runs, inside, lengths_in

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # pycocotools and NumPy 2
SIZE = WIDTH, HEIGHT = 50, 37


def whole(patch):
    result = np.zeros((HEIGHT, WIDTH), bool)
    result[patch.top : patch.top + patch.inside.shape[0], patch.left : patch.left + patch.inside.shape[1]] = patch.inside
    return result


@pytest.mark.parametrize("seed", range(20))
def test_a_polygon_has_the_pixels_whose_centres_are_inside(seed):
    random = np.random.default_rng(seed)
    angles = np.sort(random.uniform(0, 2 * np.pi, 12))  # a star around a centre, partly outside of the image
    points = random.uniform(0, SIZE) + random.uniform(2, 30, (12, 1)) * np.stack([np.cos(angles), np.sin(angles)], 1)
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    expected = Path([*points, points[0]], closed=True).contains_points(np.stack([x.ravel(), y.ravel()], 1)).reshape(y.shape)
    found = whole(inside(points, SIZE))
    assert np.array_equal(found, expected)
    theirs = peer.decode(peer.frPyObjects([points.ravel().tolist()], HEIGHT, WIDTH))[..., 0].astype(bool)
    border = binary_dilation(expected) & ~binary_erosion(expected, border_value=1)
    assert not ((found != theirs) & ~border).any()


@pytest.mark.parametrize(("points", "area"), [([[3, 4], [9, 4], [9, 9], [3, 9]], 30), ([[60, 0], [70, 0], [70, 9]], 0)])
def test_whole_pixels_are_counted_exactly_and_a_polygon_beside_the_image_has_none(points, area):
    assert inside(np.array(points, float), SIZE).inside.sum() == area
    assert Polygons((np.array([[3, 4], [9, 4], [9, 9], [3, 9]], float),)).area == 30


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("compressed", [True, False])
def test_run_length_codes_are_those_of_pycocotools(seed, compressed):
    random = np.random.default_rng(seed)
    mask = (random.random((HEIGHT, WIDTH)) < random.random()) | (np.arange(WIDTH) < random.integers(0, WIDTH))
    text = peer.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    runs = Runs(text if compressed else tuple(lengths_in(text)), SIZE)
    (patch,) = runs.patches(SIZE)
    assert np.array_equal(whole(patch), mask) and runs.area == mask.sum()


@pytest.mark.parametrize("counts", ["é", "o", "0" * 3, (5, 5), (-1, WIDTH * HEIGHT + 1), "o" * 100])
def test_a_code_that_does_not_fill_the_image_is_refused(counts):
    with pytest.raises(ValueError, match=r"runs|counts"):
        Runs(counts, SIZE)


@pytest.mark.parametrize(("value", "mode"), [(3, "L"), (300, "I;16")])
def test_later_shapes_lie_over_earlier_ones(value, mode):
    square = Polygons(
        (np.array([[0, 0], [20, 0], [20, 20], [0, 20]], float), np.array([[30, 0], [32, 0], [32, 2], [30, 2]], float))
    )
    small = Polygons((np.array([[5, 5], [9, 5], [9, 9], [5, 9]], float),))
    drawing = Drawing("image", SIZE, ((value, square), (1, small)))
    mask = np.asarray(mask_image(drawing))
    assert Image.open(drawing.open()).mode == mode and mask.shape == (HEIGHT, WIDTH)
    assert {v: int((mask == v).sum()) for v in np.unique(mask)} == {0: WIDTH * HEIGHT - 404, 1: 16, value: 388}
