"""Augmentation is random between samples and certain for each of them."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from vitrail.data.images import augment
from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.operations import BOTH_WAYS
from vitrail.data.images.plan import Operations
from vitrail.data.images.preparation import Preparation

EVERY = [
    Augmentation(),
    Augmentation(horizontal_flip=1, vertical_flip=1),
    Augmentation(crop="pad"),
    Augmentation(crop="pad", padding=0),
    Augmentation(crop="resized"),
    Augmentation(crop="resized", min_area=1, max_aspect=1),
    Augmentation(crop="pad", rotation=30),
    Augmentation(policy="randaugment", magnitude=30, operations=4),
    Augmentation(crop="resized", policy="trivial"),
    Augmentation(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5),
    Augmentation(erasing=1),
    Augmentation(crop="resized", min_area=0.05, max_area=0.2),
    Augmentation(grey=1, blur=1),
]


def picture(width: int = 40, height: int = 30, channels: int = 3) -> Image.Image:
    shape = (height, width, 3) if channels == 3 else (height, width)
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8))


def pixels(augmentation: Augmentation, image: Image.Image, preparation: Preparation, *key: int) -> np.ndarray:
    return augmentation.plan(image.size, preparation, SampleGenerator(*key)).pixels(image)


def where_it_looks(augmentation: Augmentation, width: int, height: int, preparation: Preparation, index: int) -> tuple:
    """Left, top, right and bottom of the part of a picture that is kept."""
    return augmentation.plan((width, height), preparation, SampleGenerator(0, 0, index)).frame.part


@pytest.mark.parametrize("augmentation", EVERY, ids=str)
def test_a_sample_is_fixed_by_seed_epoch_and_index(augmentation):
    preparation = Preparation.standard((16, 24))

    def digest(*key: int) -> str:
        return hashlib.sha256(pixels(augmentation, picture(), preparation, *key).tobytes()).hexdigest()

    assert digest(1, 2, 3) == digest(1, 2, 3)


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**32, 2**40 + 3])
def test_a_samples_randomness_is_numpys_of_the_four_numbers(seed):
    expected = np.random.default_rng((2, seed, 3, 70_000))
    assert SampleGenerator(seed, 3, 70_000).bit_generator.state == expected.bit_generator.state


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


def test_in_turns_every_picture_shows_its_other_side_in_the_next_epoch():
    preparation, sides = Preparation.standard((16, 24)), []
    plain = preparation.pixels(picture())
    for index in range(20):
        one, other = (pixels(Augmentation(flips="turns"), picture(), preparation, 0, epoch, index) for epoch in (4, 5))
        assert {one.tobytes(), other.tobytes()} == {plain.tobytes(), plain[:, :, ::-1].tobytes()}
        sides.append(np.array_equal(one, plain))
    assert len(set(sides)) == 2


@pytest.mark.parametrize(("share", "epochs"), [(0.5, 2), (0.25, 4), (0.75, 4), (0.4, 5), (1.0, 1), (0.0, 1)])
def test_a_sample_is_mirrored_in_its_share_of_the_epochs_from_a_random_one_on(share, epochs):
    turns = np.array([[SampleGenerator(3, epoch, index).turn(share) for epoch in range(3 * epochs)] for index in range(500)])
    for first in range(2 * epochs):
        assert (turns[:, first : first + epochs].sum(axis=1) == round(share * epochs)).all()
    assert np.abs(turns.mean(axis=0) - share).max() < 4 * np.sqrt(0.25 / 500)
    other = np.array([SampleGenerator(4, 0, index).turn(share) for index in range(500)])
    assert (other == turns[:, 0]).all() == (share in (0, 1))


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


@pytest.mark.parametrize("augmentation", EVERY, ids=str)
def test_pixels_that_are_kept_for_the_next_epoch_stay_as_they_are(augmentation):
    preparation = Preparation.standard((30, 40))
    kept = preparation.pixels(picture())
    kept.setflags(write=False)
    before = kept.tobytes()
    for index in range(5):
        augmentation.plan((40, 30), preparation, SampleGenerator(0, 0, index)).changed(kept)
    assert kept.tobytes() == before


# rotation, policies, colours


def operations_of(augmentation: Augmentation, times: int = 1000) -> list[tuple[str, float]]:
    """Every operation of many plans, by name, with its amount."""
    preparation = Preparation.standard((4, 8))
    plans = [augmentation.plan((8, 4), preparation, SampleGenerator(0, 0, index)) for index in range(times)]
    return [operation for plan in plans for step in plan.steps if isinstance(step, Operations) for operation in step.operations]


def evenly_spread(values: list[float], low: float, high: float) -> bool:
    """Uniform, by the largest distance of distribution functions (Kolmogorov & Smirnov, at 1 in 10,000)."""
    shares = (np.sort(values) - low) / (high - low)
    return np.abs(shares - np.arange(len(values)) / len(values)).max() < 2.23 / np.sqrt(len(values))


def test_rotation_and_colours_change_by_any_amount_up_to_the_largest():
    largest = {"rotate": 20, "brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "hue": 0.1}
    seen = operations_of(Augmentation(**{"rotation" if name == "rotate" else name: most for name, most in largest.items()}))
    assert [name for name, _ in seen[:5]] == list(largest)
    for name, most in largest.items():
        assert evenly_spread([amount for other, amount in seen if other == name], -most, most)


@pytest.mark.parametrize(("operations", "magnitude"), [(1, 10), (2, 9), (3, 15)])
def test_randaugment_applies_as_many_operations_as_asked_at_one_strength(operations, magnitude):
    seen = operations_of(Augmentation(policy="randaugment", operations=operations, magnitude=magnitude), 900)
    assert len(seen) == 900 * operations
    limits = augment.randaugment_limits(8, 4)
    amounts = {name: {amount for other, amount in seen if other == name} for name, _ in seen}
    assert len(amounts) == 14
    for name, values in amounts.items():
        full = limits.get(name, 0) * magnitude / 10
        assert sorted(values) == pytest.approx([-full, full] if name in BOTH_WAYS else [full])
    counts = np.unique([name for name, _ in seen], return_counts=True)[1]
    expected = len(seen) / 14
    assert ((counts - expected) ** 2 / expected).sum() < 42.5  # chi-squared with 13 degrees of freedom, at 1 in 20,000


def test_trivial_augment_applies_one_operation_of_any_strength():
    seen = operations_of(Augmentation(policy="trivial"), 3000)
    assert len(seen) == 3000
    turned = [amount for name, amount in seen if name == "rotate"]
    steps = np.abs(turned) / (135 / 30)
    assert np.allclose(steps, steps.round()) and steps.min() < 2 and steps.max() == 30
    assert abs(np.mean(np.sign(turned))) < 0.3
    assert {amount for name, amount in seen if name == "solarize"} <= {step / 30 for step in range(31)}


# erasing


def erased(augmentation: Augmentation, index: int, side: int = 40) -> np.ndarray:
    """Which pixels of a grey picture of 7s are no longer 7 (one in 256 is by chance)."""
    result = pixels(augmentation, Image.new("L", (side, side), 7), Preparation.standard((side, side), 1), 0, 0, index)
    return result[0] != 7


def test_erasing_comes_as_often_as_asked():
    happened = [erased(Augmentation(erasing=0.3), index).any() for index in range(1000)]
    assert abs(np.mean(happened) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 1000)


def test_what_is_erased_is_one_rectangle_of_the_papers_areas_and_shapes():
    areas, aspects = [], []
    for index in range(300):
        rows, columns = np.nonzero(erased(Augmentation(erasing=1), index))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert len(rows) >= 0.9 * height * width
        areas.append(height * width / 1600)
        aspects.append(height / width)
    assert 0.015 <= min(areas) < 0.05 and 0.35 < max(areas) <= 0.41
    assert 0.27 < min(aspects) < 0.35 and 2.9 < max(aspects) < 3.7
    assert abs(np.median(aspects) - 1) < 0.2


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizontal_flip": 1.1}, {"vertical_flip": -0.1}, {"padding": -1}, {"min_area": 0}, {"max_aspect": 0.5}, {"crop": "x"},
        {"rotation": 181}, {"policy": "best"}, {"operations": 0}, {"magnitude": 31}, {"brightness": 1.1}, {"contrast": -0.1},
        {"saturation": 2}, {"hue": 0.6}, {"erasing": 1.5}, {"mixup": -1}, {"cutmix": float("nan")}, {"repeats": 0},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        Augmentation(**wrong)


# further views of a sample


def test_views_of_a_sample_are_streams_of_their_own_that_come_again_whatever_was_drawn_before():
    keys = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2**40, 0, 0)]
    drawn = {key: SampleGenerator(*key) for key in keys}
    own = {key: random.bytes(16) for key, random in drawn.items()}
    views = {(*key, number): random.view(number).bytes(16) for key, random in drawn.items() for number in (1, 2, 3)}
    assert len({*own.values(), *views.values()}) == len(own) + len(views)
    for (*key, number), expected in views.items():
        assert SampleGenerator(*key).view(number).bytes(16) == expected == drawn[tuple(key)].view(number).bytes(16)
    assert drawn[0, 0, 0].bytes(16) == SampleGenerator(0, 0, 0).bytes(32)[16:]  # a view draws nothing from the sample


def test_views_of_a_sample_take_turns_of_their_own():
    of_views = [[SampleGenerator(3, 0, index).view(number).turn(0.5) for index in range(400)] for number in (1, 2)]
    everything = np.array([[SampleGenerator(3, 0, index).turn(0.5) for index in range(400)], *of_views])
    assert np.abs(np.corrcoef(everything)[np.triu_indices(3, 1)]).max() < 0.2
    turns = [SampleGenerator(3, epoch, 7).view(2).turn(0.25) for epoch in range(12)]
    assert sum(turns) == 3  # each as evenly over its epochs as the sample itself


def test_grey_images_have_no_colours_and_blurred_ones_less_contrast():
    preparation, image = Preparation.standard((200, 200)), picture(200, 200)
    grey = pixels(Augmentation(horizontal_flip=0, grey=1), image, preparation, 0, 0, 0)
    assert (grey[0] == grey[1]).all() and (grey[0] == grey[2]).all()
    assert pixels(Augmentation(horizontal_flip=0, grey=1), picture(channels=1), Preparation.standard((8, 8), 1), 0, 0, 0).any()
    sharp = pixels(Augmentation(horizontal_flip=0), image, preparation, 0, 0, 0)
    blurred = [pixels(Augmentation(horizontal_flip=0, blur=1), image, preparation, 0, epoch, 0).std() for epoch in range(10)]
    assert max(blurred) <= sharp.std() and min(blurred) < 0.7 * sharp.std()


def test_a_resized_crop_has_an_area_between_the_least_and_the_largest():
    crops = Augmentation(crop="resized", min_area=0.1, max_area=0.2, max_aspect=1)
    for epoch in range(50):
        left, top, right, bottom = crops.frame((100, 100), Preparation.standard((8, 8)), SampleGenerator(0, epoch, 0)).part
        assert 0.0999 <= (right - left) * (bottom - top) / 1e4 <= 0.2001
