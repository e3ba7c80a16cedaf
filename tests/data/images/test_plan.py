"""What belongs to a picture goes where its pixels go."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.operations import BACK, BOTH_WAYS, POLICY, randaugment_limits, trivial_limits
from vitrail.data.images.plan import Erase, Flip, Operations, Plan, Resize, Shift, to_pixels
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.dataset import ImageDataset

RADIUS = 7
NEAREST = Image.Resampling.NEAREST
MOVING = [
    {"crop": "none"},
    {"crop": "pad", "padding": 6, "vertical_flip": 0.5},
    {"crop": "resized", "min_area": 0.3},
    {"crop": "resized", "min_area": 0.5, "vertical_flip": 0.5, "rotation": 60},
    {"rotation": 180},
    {"policy": "randaugment", "operations": 3, "magnitude": 8},
    {"policy": "trivial", "crop": "resized", "min_area": 0.6},
    {"brightness": 0.3, "contrast": 0.3, "saturation": 0.5, "hue": 0.5, "rotation": 20, "crop": "pad"},
    {"erasing": 1.0, "crop": "resized"},
]
every_change = pytest.mark.parametrize("change", MOVING, ids=str)


def plan_of(augmentation: Augmentation, size: tuple[int, int], preparation: Preparation, index: int) -> Plan:
    return augmentation.plan(size, preparation, SampleGenerator(7, 0, index))


def still(size: tuple[int, int], *steps) -> Plan:
    """A plan that leaves the size as it is."""
    return Plan(size, Resize((0, 0, *size), size, (0, 0, *size), NEAREST), steps)


def with_dot(size: tuple[int, int], place: np.ndarray, channels: int) -> Image.Image:
    """A dark picture with a smooth light dot of `RADIUS` about a place."""
    y, x = np.mgrid[: size[1], : size[0]] + 0.5
    light = 90 + 120 * np.maximum(0, 1 - ((x - place[0]) ** 2 + (y - place[1]) ** 2) / RADIUS**2) ** 2
    pixels = np.rint(light).astype(np.uint8)
    return Image.fromarray(pixels if channels == 1 else np.stack([pixels, pixels // 2, pixels], axis=-1))


def centre_of_difference(first: np.ndarray, second: np.ndarray, about: np.ndarray, radius: float) -> np.ndarray | None:
    """Where two results differ within a distance of a place: the mean place, or None if nowhere enough to tell."""
    y, x = np.mgrid[: first.shape[1], : first.shape[2]] + 0.5
    weight = np.abs(first.astype(float) - second).sum(axis=0) * (np.hypot(x - about[0], y - about[1]) < radius)
    if weight.max() < 20:
        return None
    return np.array([(x * weight).sum(), (y * weight).sum()]) / weight.sum()


# points


@every_change
@pytest.mark.parametrize(
    ("size", "image_size", "channels", "fit"),
    [((97, 64), (48, 48), 3, "cover"), ((80, 81), (61, 67), 1, "squash"), ((50, 120), (72, 40), 3, "cover")],
)
def test_a_dot_is_found_where_its_point_is(change, size, image_size, channels, fit):
    preparation = Preparation.standard(image_size, channels, 0.9, fit=fit)
    augmentation, random = Augmentation(**change), np.random.default_rng(1)
    found = 0
    for index in range(60):
        plan = plan_of(augmentation, size, preparation, index)
        here, there = random.uniform(0.25, 0.75, (2, 2)) * size  # the same values at two places: the same colours overall
        moved = plan.points(np.stack([here, there]))
        reach = RADIUS * np.linalg.norm(plan.matrix[:2, :2], 2) + 2
        if np.linalg.norm(moved[0] - moved[1]) < 2 * reach or moved.min() < reach or (plan.frame.result - moved).min() < reach:
            continue
        erased = any(isinstance(step, Erase) for step in plan.steps)
        first, second = (plan.pixels(with_dot(size, place, channels)) for place in (here, there))
        for place in moved:
            centre = centre_of_difference(first, second, place, reach)
            if centre is not None:
                assert np.abs(centre - place).max() < (reach if erased else 0.6), plan  # half of a dot may be erased
                found += 1
    assert found >= 8


@pytest.mark.parametrize("name", sorted(BACK))
@pytest.mark.parametrize("share", [-0.4, 0.25])
def test_every_operation_that_moves_pixels_moves_points(name, share):
    size = (71, 54)
    plan = still(size, Operations(((name, share * trivial_limits(*size)[name]),), (90, 45, 90)))
    for place in ((35.5, 27.0), (28.2, 31.9), (44.0, 20.5)):
        moved = plan.points(np.array([place]))[0]
        plain, dotted = (plan.pixels(with_dot(size, at, 3)) for at in (np.array([-99, -99]), np.array(place)))
        assert np.abs(centre_of_difference(plain, dotted, moved, 99) - moved).max() < 0.1


def test_points_by_hand():
    points = np.array([[0.5, 0.5], [3.0, 1.0]])
    size = (8, 6)
    fill = (0, 0, 0)
    for steps, expected in [
        ((), points),
        ((Shift(2, -1, fill),), [[2.5, -0.5], [5, 0]]),
        ((Flip(True, False),), [[7.5, 0.5], [5, 1]]),
        ((Flip(False, True),), [[0.5, 5.5], [3, 5]]),
        ((Flip(True, True),), [[7.5, 5.5], [5, 5]]),
        ((Shift(2, -1, fill), Flip(True, False)), [[5.5, -0.5], [3, 0]]),
        ((Flip(True, False), Shift(2, -1, fill)), [[9.5, -0.5], [7, 0]]),
        ((Operations((("rotate", 90.0),), fill),), [[1.5, 6.5], [2, 4]]),  # anticlockwise about (4, 3)
        ((Operations((("rotate", 180.0), ("brightness", 0.5)), fill),), [[7.5, 5.5], [5, 5]]),
        ((Operations((("shear_x", 0.5),), fill),), [[1.75, 0.5], [4, 1]]),  # 2.5 and 2 above the middle
        ((Operations((("shear_y", 0.5),), fill),), [[0.5, 2.25], [3, 1.5]]),  # 3.5 and 1 left of it
        ((Operations((("translate_x", 3.0), ("translate_y", -2.0)), fill),), [[3.5, -1.5], [6, -1]]),
        ((Operations((("translate_x", 3.0), ("rotate", 180.0)), fill),), [[4.5, 5.5], [2, 5]]),
        ((Erase(0, 0, np.zeros((3, 2, 2), np.uint8)),), points),
    ]:
        assert np.allclose(still(size, *steps).points(points), expected), steps


@pytest.mark.parametrize(
    ("size", "expected"),
    [((200, 100), [[0.0, 0.0], [40.0, 40.0], [20.5, 20.5]]), ((100, 200), [[0.0, 0.0], [40.0, 40.0], [20.5, 20.5]])],
)
def test_the_preparation_by_hand(size, expected):
    """The shorter side of 100 becomes 50, and 40 of it are kept: 10 pixels of the picture are cut off each side of it."""
    preparation = Preparation.standard((40, 40), 3, 0.8)
    width, height = size
    corner = np.array([(width - 80) / 2, (height - 80) / 2])
    plan = preparation.plan(size)
    assert np.allclose(plan.points(corner + np.array([[0, 0], [80, 80], [41, 41]])), expected) and not plan.mirrored
    assert np.allclose(plan.points(np.reshape(preparation.box(*size), (2, 2))), [[0, 0], [40, 40]])
    squashed = Preparation.standard((40, 40), 3, fit="squash").plan(size)
    assert np.allclose(squashed.points(np.array([[0.0, 0.0], size, [50, 25]])), [[0, 0], [40, 40], [2000 / width, 1000 / height]])


# boxes


@every_change
def test_boxes_contain_their_points_and_stay_in_the_result(change):
    random, size = np.random.default_rng(2), (90, 61)
    preparation = Preparation.standard((40, 50), 3, 0.9)
    for index in range(20):
        plan = plan_of(Augmentation(**change), size, preparation, index)
        corners = np.sort(random.uniform(0, 1, (7, 2, 2)) * size, axis=1)
        moved = plan.boxes(corners.reshape(7, 4))
        points = plan.points((corners[:, :1] + random.uniform(0, 1, (7, 5, 2)) * np.diff(corners, axis=1)).reshape(-1, 2))
        points = points.clip(0, (50, 40)).reshape(7, 5, 2)
        assert (points >= moved[:, None, :2] - 1e-9).all() and (points <= moved[:, None, 2:] + 1e-9).all()
        assert moved.min() >= 0 and (moved[:, 2:] <= (50, 40)).all() and (moved[:, 2:] >= moved[:, :2]).all()


# masks


def values(width: int, height: int) -> np.ndarray:
    """Every pixel has a value of its own, as far as they go, but for 255."""
    return (np.arange(width * height).reshape(height, width) * 37 % 251).astype(np.uint8)


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from([(16, 16), (16, 25), (33, 7)]), st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_a_mask_moves_as_a_picture_of_its_values_resized_by_the_nearest(width, height, image_size, index):
    """Where the nearest pixel is clear: half of two pixels is left to rounding."""
    preparation = Preparation.standard(image_size, 1, 0.9, resampling="nearest", mean=(1.0,))  # fills with 255
    kinds = [{"crop": "none"}, {"crop": "pad", "padding": 3}, {"crop": "resized", "vertical_flip": 0.5}]
    plan = plan_of(Augmentation(**kinds[index % 3]), (width, height), preparation, index)
    mask = plan.mask(values(width, height))
    picture = plan.pixels(Image.fromarray(values(width, height)))[0]
    centres = np.mgrid[: image_size[0], : image_size[1]][::-1].reshape(2, -1).T + 0.5
    back = np.linalg.inv(plan.matrix)
    source = centres @ back[:2, :2].T + back[:2, 2]
    clear = (np.abs(source - source.round()) > 1e-6).all(axis=1).reshape(image_size)
    assert np.array_equal(mask[clear], picture[clear]) and mask.shape == image_size


@pytest.mark.parametrize("name", sorted(BACK))
@pytest.mark.parametrize("share", [-0.7, 0.31])
def test_a_mask_is_turned_and_sheared_as_pillow_does(name, share):
    size, amount = (61, 48), share * trivial_limits(61, 48)[name]
    mask = still(size, Operations(((name, amount),), (255,))).mask(values(*size))
    picture = Image.fromarray(values(*size))
    if name == "rotate":
        expected = picture.rotate(amount, NEAREST, fillcolor=255)
    else:
        expected = picture.transform(size, Image.Transform.AFFINE, BACK[name](amount, *size), NEAREST, fillcolor=255)
    assert (mask != np.asarray(expected)).mean() < 0.01  # Pillow counts places in 65536ths of a pixel
    assert ((mask == 255) != (np.asarray(expected) == 255)).mean() < 0.01 and (mask == 255).any()


def test_a_mask_or_picture_of_another_size_is_refused():
    plan = Preparation.standard((8, 8)).plan((10, 12))
    for use in (lambda: plan.mask(np.zeros((10, 12), int)), lambda: plan.pixels(Image.new("RGB", (12, 10)))):
        with pytest.raises(ValueError, match=r"\(10, 12\)"):
            use()


# the order of draws


@given(st.integers(0, 10_000), st.sampled_from(["none", "pad", "resized"]), st.sampled_from(["none", "randaugment", "trivial"]))
@settings(max_examples=80, deadline=None)
def test_everything_is_drawn_in_one_order_and_nothing_else_is(index, crop, policy):
    """What is mixed afterwards draws from the same generator: how much a plan draws must not change."""
    changes = {"vertical_flip": 0.3, "padding": 5, "rotation": 20, "brightness": 0.2, "hue": 0.1, "erasing": 0.5}
    drawn, random = SampleGenerator(7, 0, index), SampleGenerator(7, 0, index)
    plan = Augmentation(crop=crop, policy=policy, **changes).plan((40, 30), Preparation.standard((14, 18)), drawn)
    fill, steps = (128, 128, 128), []
    if crop == "resized":
        random.uniform(size=4)  # shape, area, left, top
    if crop == "pad":
        left, top = random.integers(0, 11, 2)
        steps.append(Shift(5 - left, 5 - top, fill))
    flip = Flip(random.random() < 0.5, random.random() < 0.3)
    steps += [flip] if flip != Flip(False, False) else []
    operations = [("rotate", random.uniform(-20, 20))]
    strength = random.integers(0, 31) / 30 if policy == "trivial" else 0.9
    limits = trivial_limits(18, 14) if policy == "trivial" else randaugment_limits(18, 14)
    for _ in range({"none": 0, "randaugment": 2, "trivial": 1}[policy]):
        name, negative = list(POLICY)[random.integers(14)], random.random() < 0.5
        operations.append((name, (-1 if negative and name in BOTH_WAYS else 1) * strength * limits.get(name, 0)))
    operations += [("brightness", random.uniform(-0.2, 0.2)), ("hue", random.uniform(-0.1, 0.1))]
    steps.append(Operations(tuple(operations), fill))
    if random.random() < 0.5:
        random.uniform(size=2)  # area and shape
        noise = plan.steps[-1].noise
        top, left = random.integers(0, (15 - noise.shape[1], 19 - noise.shape[2]))
        steps.append(Erase(left, top, noise))
        assert np.array_equal(noise, random.integers(0, 256, noise.shape, np.uint8))
    assert plan.steps == tuple(steps)
    assert drawn.bit_generator.state == random.bit_generator.state


# through the loader


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_samples_plan_is_for_the_whole_picture_though_a_fraction_was_decoded(crop, orientation):
    """A photograph of 1203×905 pixels is read at a quarter or less, the last row and column of which are not whole."""
    size, file, exif = (1203, 905), io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    y, x = np.mgrid[: size[1], : size[0]] + 0.5
    place = np.array([700.5, 400.25])
    stored = np.where(np.hypot(x - place[0], y - place[1]) < 40, 250, 20).astype(np.uint8)
    Image.fromarray(stored).convert("RGB").save(file, "JPEG", quality=95, exif=exif)
    width, height = size[::-1] if orientation == 6 else size
    place = {1: place, 3: np.array(size) - place, 6: np.array([size[1] - place[1], place[0]])}[orientation]
    preparation = Preparation.standard((32, 32), mean=(20 / 255,) * 3)  # the padding is as dark
    data = ImageDataset([Item("a", file.getvalue(), 0)], preparation, Augmentation(crop=crop, min_area=0.7), 1)
    disc = np.hypot(*(np.mgrid[:height, :width][::-1] + 0.5 - place[:, None, None])) < 40
    for epoch in range(12):
        pixels, plan = data._planned(0, SampleGenerator(0, epoch, 0))
        assert plan is not None and plan.size == (width, height)
        moved = plan.points(place[None])[0]
        if moved.min() < 4 or moved.max() > 28:
            continue
        centre = centre_of_difference(np.full((1, 32, 32), 20), pixels[:1], moved, 8)
        assert np.abs(centre - moved).max() < 0.1
        assert (plan.mask(disc, fill=0) != (pixels[0] > 135)).mean() < 0.01


def test_prepared_pixels_and_the_whole_picture_are_changed_alike():
    preparation = Preparation.standard((20, 24), 3, 0.9)
    picture = with_dot((50, 40), np.array([20, 20]), 3)
    prepared, plain = preparation.planned(picture)
    assert np.array_equal(prepared, to_pixels(preparation.crop(picture))) and plain == preparation.plan((50, 40))
    for index in range(10):
        plan = plan_of(Augmentation(crop="pad", policy="trivial", erasing=0.5), (50, 40), preparation, index)
        assert np.array_equal(plan.changed(prepared), plan.pixels(picture))
        assert np.array_equal(replace(plain, steps=plan.steps).changed(prepared), plan.changed(prepared))
