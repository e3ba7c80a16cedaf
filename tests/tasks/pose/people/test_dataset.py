"""Joints stay on their pixels, whatever is done to a person, and a sample is fixed by its key."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.parts.vision.heatmap_decoder import pixels_per_place
from vitrail.tasks.pose.heatmaps import encode
from vitrail.tasks.pose.people.dataset import PersonDataset, tilt, torso_of
from vitrail.tasks.pose.people.people import Person, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton

NAMES = (
    "nose", "left_shoulder", "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip",
    "left_knee", "right_knee", "left_ankle", "right_ankle",
)  # fmt: skip
SKELETON = Skeleton.of(NAMES).complete
MIRRORED = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11]
PLACES = [
    (100, 40), (130, 60), (70, 62), (150, 90), (52, 88), (160, 120), (45, 118), (118, 125), (82, 127), (122, 165), (80, 168),
    (125, 205), (76, 210),
]  # fmt: skip
"""Of the joints, in a picture of 200×240 pixels."""
COLOURS = np.array([[60 + 97 * k % 190, 60 + 53 * k % 190, 60 + 149 * k % 190] for k in range(len(NAMES))])
PREPARATION = BoxPreparation.of_size((128, 96))


def person(number: int = 0, *, marked: range = range(len(NAMES)), factor: int = 1) -> Person:
    """A picture with a dot of its own colour at every joint; ``factor`` is how many times larger it is."""
    picture = Image.new("RGB", (200 * factor, 240 * factor))
    places = [((x + 0.5) * factor - 0.5, (y + 0.5) * factor - 0.5) for x, y in PLACES]
    draw, radius = ImageDraw.Draw(picture), 6 * factor
    for (x, y), colour in zip(places, COLOURS.tolist(), strict=True):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tuple(colour))
    joints = tuple((x, y, 2 if k in marked else 0) for k, (x, y) in enumerate(places))
    box = Box(35 * factor, 25 * factor, 135 * factor, 195 * factor)
    return Person(f"{number}", picture, Pose(box, joints, 1.0, number, number))


def dataset(count: int = 1, seed: int = 0, *, factor: int = 1, **augmentation) -> PersonDataset:
    """People that are changed at random, by nothing that is not named."""
    people = [person(number, factor=factor) for number in range(count)]
    return PersonDataset(people, PREPARATION, SKELETON, Augmentation(**{"horizontal_flip": 0, **augmentation}), seed)


def colours_at_joints(batch: dict, order: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The colour at the place of each joint that is in view, and the one that was drawn there: (N, 3) both."""
    image, joints = batch["images"][0].numpy(), batch["joints"][0].numpy()
    high, wide = image.shape[1:]
    inside = ((joints >= 1) & (joints <= [wide - 2, high - 2])).all(axis=1)
    x, y = joints[inside].round().astype(int).T
    return image[:, y, x].T.astype(int), COLOURS[order][inside]


KINDS = {
    "nothing": {},
    "rotation": {"rotation": 45},
    "upside down": {"rotation": 180},
    "scale": {"scale": 0.35},
    "halves": {"half_body": 1},
    "everything": {"rotation": 40, "scale": 0.35, "half_body": 0.5},
}


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("factor", [1, 5])
@pytest.mark.parametrize("augmentation", KINDS.values(), ids=KINDS)
def test_every_joint_stays_on_its_pixel(augmentation, factor, mirrored):
    """In a mirror image the dot of the left hand is where the right hand is said to be."""
    data, seen = dataset(factor=factor, horizontal_flip=float(mirrored), **augmentation), 0
    for epoch in range(12):
        found, drawn = colours_at_joints(data[epoch, 0], MIRRORED if mirrored else list(range(len(NAMES))))
        assert np.abs(found - drawn).max() <= 2
        seen += len(found)
    assert seen > 12 * 5


def test_noise_over_a_part_leaves_joints_and_what_is_learned_of_them_where_they_are():
    """A joint under the noise is to be found, too: where its dot was drawn."""
    changes, size, heatmap, covered = {"rotation": 40, "scale": 0.3, "horizontal_flip": 1}, (128, 96), (32, 24), []
    plain, erased = dataset(**changes), dataset(**changes, erasing=1)
    step = pixels_per_place(size, heatmap).numpy()
    for epoch in range(12):
        before, after = plain[epoch, 0], erased[epoch, 0]
        assert all(torch.equal(before[name], after[name]) for name in ("joints", "weights"))
        noise = (before["images"] != after["images"])[0].any(dim=0).numpy()
        (maps,), places = encode(after["joints"], size, heatmap)[0].numpy(), after["joints"][0].numpy()
        inside = ((places >= 0) & (places <= [95, 127])).all(axis=1)
        peaks = np.array([np.unravel_index(one.argmax(), heatmap)[::-1] for one in maps[inside]]) * step
        assert (np.abs(peaks - places[inside]) <= step / 2 + 1e-3).all()
        x, y = places[inside].round().astype(int).T
        covered += noise[y, x].tolist()
        found, drawn = after["images"][0].numpy()[:, y, x].T.astype(int), COLOURS[MIRRORED][inside]
        assert np.abs(found - drawn)[~noise[y, x]].max(initial=0) <= 2
    assert 0.1 < np.mean(covered) < 0.9


@pytest.mark.parametrize(("flips", "order"), [
    ({"horizontal_flip": 1, "vertical_flip": 1}, list(range(len(NAMES)))),
    ({"vertical_flip": 1}, MIRRORED),
])  # fmt: skip
def test_left_and_right_change_places_in_a_mirror_image_and_not_by_half_a_turn(flips, order):
    found, drawn = colours_at_joints(dataset(**flips)[0, 0], order)
    assert len(found) == len(NAMES) and np.abs(found - drawn).max() <= 2


def test_what_a_batch_holds():
    batch = dataset(3).batch([(0, 2), (0, 0)])
    assert batch["images"].shape == (2, 3, 128, 96) and batch["images"].dtype == torch.uint8
    assert batch["joints"].shape == (2, 13, 2) and batch["joints"].dtype == torch.float32
    assert batch["weights"].shape == (2, 13) and batch["weights"].dtype == torch.float32
    assert batch["number"].tolist() == [2, 0]


def shares(data: PersonDataset) -> set[float]:
    """How far apart the shoulders are in 20 samples, as a multiple of how far they are in the sample of an unchanged box."""

    def apart(sample: dict) -> float:
        return float((sample["joints"][0, 1] - sample["joints"][0, 2]).norm())

    return {apart(data[epoch, 0]) / apart(PersonDataset(data.people, PREPARATION, SKELETON)[0, 0]) for epoch in range(20)}


def test_a_box_grows_and_shrinks_by_the_scale_at_most():
    found = shares(dataset(scale=0.25))
    assert 1 / 1.25 < min(found) < 0.87 and 1.15 < max(found) < 1 / 0.75


def test_one_half_of_a_body_fills_the_picture_of_halves():
    """The upper half is shown about as often as the lower, 1.2 times the box around its joints within the usual rim."""
    data, high = dataset(half_body=1), 128
    shown = {"upper": 0, "lower": 0}
    for epoch in range(40):
        joints = data[epoch, 0]["joints"][0].numpy()
        for half, upper in (("upper", slice(0, 7)), ("lower", slice(7, 13))):
            low, top = joints[upper, 1].max(), joints[upper, 1].min()
            across = np.ptp(joints[upper, 0]) / (96 - 1)
            filled = max((low - top) / (high - 1), across)
            shown[half] += bool(filled == pytest.approx(1 / 1.2 / 1.25))
    assert sum(shown.values()) == 40 and min(shown.values()) > 10


EVERYTHING = {
    "rotation": 40, "scale": 0.3, "half_body": 0.3, "horizontal_flip": 0.5, "policy": "randaugment", "erasing": 0.5,
    "brightness": 0.4,
}  # fmt: skip


def test_the_same_key_gives_the_same_sample_to_the_bit_and_another_epoch_another():
    one, other = dataset(4, seed=3, **EVERYTHING), dataset(4, seed=3, **EVERYTHING)
    one.batch([(0, 1), (7, 3)])  # what came before does not matter
    first, again = one.batch([(2, 0), (2, 3)]), other[2, 3]
    assert all(torch.equal(first[name][1:], tensor) for name, tensor in again.items())
    assert not torch.equal(one[3, 3]["images"], again["images"])
    assert not torch.equal(dataset(4, seed=4, **EVERYTHING)[2, 3]["images"], again["images"])


UPRIGHT = BoxPreparation.of_size((128, 128), upright=True)


def leaning(angle: float, *, marked: range = range(len(NAMES))) -> Person:
    """A person who is turned clockwise by some degrees around the middle of the picture, with the picture."""
    upright = person(marked=marked)
    picture = upright.image.rotate(-angle, Image.Resampling.BILINEAR, center=(100, 120))
    turn = np.deg2rad(angle)
    joints, middle = upright.joints, np.array([99.5, 119.5])
    joints[:, :2] = (joints[:, :2] - middle) @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]] + middle
    pose = upright.target._replace(joints=tuple((x, y, int(seen)) for x, y, seen in joints.tolist()), box=Box(0, 20, 200, 200))
    return Person("leaning", picture, pose)


@pytest.mark.parametrize("angle", [-170, -90, -30, 0, 20, 90, 135])
def test_the_tilt_is_the_angle_by_which_somebody_leans(angle):
    # the middle of the hips is at (100, 126), of the shoulders at (100, 61)
    assert tilt(leaning(angle).joints, torso_of(SKELETON)) == pytest.approx(angle, abs=1e-6)
    assert tilt(leaning(angle, marked=range(6)).joints, torso_of(SKELETON)) == 0  # no hip is marked


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("angle", [-170, -90, 30, 135])
def test_people_are_turned_upright_to_be_learned_from_and_joints_stay_on_their_pixels(angle, mirrored):
    changes = Augmentation(horizontal_flip=float(mirrored), rotation=20)
    data, angles = PersonDataset([leaning(angle)], UPRIGHT, SKELETON, changes), []
    for epoch in range(12):
        batch = data[epoch, 0]
        found, drawn = colours_at_joints(batch, MIRRORED if mirrored else list(range(len(NAMES))))
        assert np.abs(found - drawn).max() <= 8  # the picture has been turned twice
        angles.append(tilt(np.column_stack([batch["joints"][0].numpy(), batch["weights"][0].numpy()]), torso_of(SKELETON)))
    assert np.abs(angles).max() <= 20 and np.std(angles) > 5


def test_people_are_looked_at_as_they_are_where_nothing_is_learned():
    (found,) = PersonDataset([leaning(90)], UPRIGHT, SKELETON)[0, 0]["joints"].numpy()
    expected = UPRIGHT.warp(Box(0, 20, 200, 200)).inside(leaning(90).joints[:, :2])
    assert np.abs(found - expected).max() < 1e-3
