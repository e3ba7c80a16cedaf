"""Pose estimation: what is learned, how joints are read, what is scored."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import rotate, zoom
from scipy.special import softmax

from stick_figures import JOINTS, write_people
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.models.registry import build, model_config
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.heatmaps import decode, encode, heatmaps_of, in_views, joints_in, resized, surest_turns, turned, turned_by
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.task import PoseEstimation, losses

SIZE, HEATMAP = (64, 48), (32, 24)


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    return open_people(write_people(tmp_path_factory.mktemp("people"), 5, people=2))


@pytest.fixture
def task(people) -> PoseEstimation:
    fields = {"image_size": SIZE, "patch_size": 8, "patch_padding": 0, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    torch.manual_seed(0)
    model = build(model_config("ViTPose-Ti-simple", num_classes=len(JOINTS), **fields))
    torch.nn.init.normal_(model.decoder.heatmaps.weight)
    return PoseEstimation(model, BoxPreparation.of_size(SIZE), people.skeleton, PoseSettings()).eval()


def batch_of(task, people, count=4):
    return task.dataset(people.split("all")).batch([(0, number) for number in range(count)])


class Perfect(torch.nn.Module):
    """Answers with the heatmaps that are to be learned, or mirrored ones for mirrored images."""

    def __init__(self, task, batch):
        super().__init__()
        self.config, self.heatmaps, self.task = task.model.config, encode(batch["joints"], SIZE, HEATMAP)[0], task
        self.images = task.images(batch)

    def forward(self, images):
        if torch.equal(images, self.images):
            return self.heatmaps
        assert torch.equal(images, self.images.flip(-1))
        return self.heatmaps.flip(-1)[:, self.task.skeleton.order_mirrored]


def test_images_may_be_smaller_at_first_and_joints_with_them(task, people):
    small = batch_of(task, people)
    task.allow_any_size()
    task.train().image_size = (32, 24)
    small_loss = task(small)["loss"]
    half = PoseEstimation(task.model, BoxPreparation.of_size((32, 24)), people.skeleton, task.settings).train()
    half.allow_any_size()
    given = {**small, "images": small["images"], "joints": (small["joints"] + 0.5) / 2 - 0.5}
    images = torch.nn.functional.interpolate(
        task.preparation.normalize(small["images"]), (32, 24), mode="bilinear", antialias=True
    )
    half.images = lambda batch: images
    torch.testing.assert_close(small_loss, half(given)["loss"])


def test_the_loss_is_the_squared_error_of_marked_joints_in_view(task, people):
    batch = batch_of(task, people)
    batch["weights"][0, 2] = 0
    batch["joints"][1, 3] = torch.tensor([500.0, 500.0])
    found, expected = task(batch)["loss"].item(), 0.0
    heatmaps = task.model(task.images(batch)).detach()
    for row in range(4):
        for joint in range(len(JOINTS)):
            if (row, joint) in ((0, 2), (1, 3)):
                continue
            x, y = batch["joints"][row, joint].double() * torch.tensor([23 / 47, 31 / 63])
            for i in range(32):
                for j in range(24):
                    near = abs(j - int(x + 0.5)) <= 6 and abs(i - int(y + 0.5)) <= 6
                    bell = math.exp(-((j - x) ** 2 + (i - y) ** 2) / 8) if near else 0.0
                    expected += (heatmaps[row, joint, i, j].item() - bell) ** 2
    assert found == pytest.approx(expected / (4 * len(JOINTS) * math.pi * 4), rel=1e-4)


@pytest.mark.parametrize("mirror", [True, False])
def test_a_model_that_answers_with_the_bells_finds_every_joint(task, people, mirror):
    batch = batch_of(task, people)
    task.settings = task.settings.changed(mirror=mirror)
    task.model = Perfect(task, batch)
    answers, metrics = task.answer(batch), task.metrics(keep=True)
    metrics.update(answers, batch)
    assert (answers["joints"] - batch["joints"]).norm(dim=-1).max() < 0.05
    given = np.stack([person.joints for person in people.split("all")[:4]])
    assert np.abs(metrics.found.joints - given[..., :2]).max() < 0.05
    scores = metrics.scores()
    assert scores["pck"] == 1 and scores["oks"] > 0.999 and scores["ap"] == 1 and scores["people"] == 4


@pytest.mark.parametrize(("hidden", "by", "left_out"), [(1, "torso", 1), (2, "torso", 2), (3, "box", 0)])
def test_details_tell_what_joints_are_measured_by_and_how_many_people_are_left_out(task, people, hidden, by, left_out):
    batch = batch_of(task, people)
    batch["marked"][:hidden, JOINTS.index("right_hip")] = 0
    metrics = task.metrics()
    with torch.no_grad():
        metrics.update(task.answer(batch), batch)
    details = metrics.details()
    assert (details["pck_by"], details["pck_left_out"]) == (by, left_out)


def test_the_mean_of_image_and_mirror_image_is_read(task, people):
    batch = batch_of(task, people)
    images = task.images(batch)
    with torch.no_grad():
        plain, other = task.model(images), task.model(images.flip(-1))
        answers = task.answer(batch)
    other = other.flip(-1)[:, [0, 2, 1, 4, 3, 6, 5]]
    joints, scores = joints_in((plain + other) / 2, task.boxes)
    torch.testing.assert_close(answers["joints"], joints)
    torch.testing.assert_close(answers["scores"], scores)
    torch.testing.assert_close(answers["loss"], losses(plain, batch, SIZE, 2.0))  # as it is learned


@pytest.mark.parametrize("smoothing", [0.0, 0.8, 2.0])
def test_joints_are_read_with_the_smoothing_of_the_model(task, people, smoothing):
    batch = batch_of(task, people)
    task.settings, task.boxes = task.settings.changed(mirror=False), task.boxes.changed(smoothing=smoothing)
    with torch.no_grad():
        places, _ = decode(task.model(task.images(batch)), sigma=smoothing)
        joints = task.answer(batch)["joints"]
    torch.testing.assert_close(joints, places * (torch.tensor([47 / 23, 63 / 31])))


SQUARE = (32, 32)


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_heatmaps_of_upright_people_turn_with_the_picture_whatever_the_network_is(turns, mirror):
    torch.manual_seed(0)
    network, images = torch.nn.Conv2d(3, 2, 5, padding=2), torch.rand(3, 3, *SQUARE)
    skeleton, preparation = Skeleton.of(("left_eye", "right_eye")).complete, BoxPreparation.of_size(SQUARE, upright=True)
    with torch.no_grad():
        as_it_is, plain = heatmaps_of(network, images, preparation, skeleton, mirror=mirror)
        found, _ = heatmaps_of(network, torch.rot90(images, turns, (-2, -1)), preparation, skeleton, mirror=mirror)
        alone = torch.cat([in_views(network, image[None], range(8)) for image in images])
    torch.testing.assert_close(found, torch.rot90(as_it_is, turns, (-2, -1)))
    torch.testing.assert_close(as_it_is, alone)  # each image is weighed by itself
    assert plain is as_it_is


def test_the_surest_of_eight_turns_weigh_the_most():
    heights = torch.linspace(0.1, 0.9, 16).reshape(8, 2)[torch.tensor([3, 0, 6, 1, 7, 2, 5, 4])]  # of two images in eight turns
    asked = []

    def network(images):
        """Two heatmaps of one height everywhere, which is of this view of this image."""
        begin, end = sum(asked), sum(asked) + len(images)
        asked.append(len(images))
        height = heights.flatten()[begin:end]
        return torch.stack([height / 2, height * 1.5], dim=1)[..., None, None].expand(-1, -1, 9, 9)

    found = in_views(network, torch.rand(2, 3, 9, 9), range(8))
    weights = softmax(20 * heights.numpy(), axis=0)
    each = weights * heights.numpy()
    for place, mean in {4: each.sum(axis=0), 0: each[::2].sum(axis=0)}.items():  # diagonal turns have not seen the corner
        np.testing.assert_allclose(found[:, :, place, place], np.stack([mean / 2, mean * 1.5], axis=1), rtol=1e-5)
    assert asked == [8, 8]


@pytest.mark.parametrize("eighths", range(-8, 9))
def test_images_are_turned_against_the_clock_as_scipy_turns_them(eighths):
    images = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    for beyond, mode in {"border": "nearest", "zeros": "grid-constant"}.items():
        found = turned_by(images, eighths, beyond=beyond)
        expected = rotate(images.numpy(), 45 * eighths, axes=(2, 3), reshape=False, order=1, mode=mode)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    bytes_ = turned_by((images * 255).to(torch.uint8), eighths)
    assert bytes_.dtype == torch.uint8
    assert (bytes_.float() / 255 - turned_by((images * 255).floor() / 255, eighths)).abs().max() < 0.51 / 255


@pytest.mark.parametrize("size", [(9, 9), (12, 7), (24, 5)])
def test_images_are_resized_corners_on_corners_as_scipy_zooms(size):
    images = torch.rand(2, 3, 12, 9, generator=torch.Generator().manual_seed(0))
    expected = zoom(images.numpy(), (1, 1, size[0] / 12, size[1] / 9), order=1, grid_mode=False)
    np.testing.assert_allclose(resized(images, size), expected, atol=1e-5)
    bytes_ = resized((images * 255).to(torch.uint8), size)
    assert bytes_.dtype == torch.uint8
    assert (bytes_.float() / 255 - resized((images * 255).floor() / 255, size)).abs().max() < 0.51 / 255


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize(("size", "small"), [((32, 32), (24, 24)), ((32, 48), (24, 40))])
def test_heatmaps_of_several_sizes_are_their_mean_with_mirror_images_or_without(size, small, mirror):
    torch.manual_seed(0)
    network, images, order = torch.nn.Conv2d(3, 2, 8, stride=2, padding=3), torch.rand(3, 3, *size), [1, 0]  # as patches of 8
    skeleton = Skeleton.of(("left_eye", "right_eye")).complete
    preparation = BoxPreparation.of_size(size, smaller_sizes=[0.8])
    with torch.no_grad():
        found, told = heatmaps_of(network, images, preparation, skeleton, mirror=mirror)
        answers = []
        for view in (images, resized(images, small)):
            answer = network(view)
            answers.append((answer + network(view.flip(-1))[:, order].flip(-1)) / 2 if mirror else answer)
    heights = np.stack([answer.numpy().max(axis=(2, 3)).mean(axis=1) for answer in answers])  # (2, 3)
    first, second = torch.from_numpy(softmax(20 * heights, axis=0))[..., None, None, None]
    torch.testing.assert_close(found, first * answers[0] + second * resized(answers[1], answers[0].shape[2:]))
    assert told is found


def test_epochs_are_compared_in_one_size(task, people):
    """And in all else as people are looked at."""
    batch, own = batch_of(task, people), task.boxes
    expected = task.answer(batch)
    task.boxes = own.changed(smaller_sizes=(0.5,))
    task.allow_any_size()
    found, whole = task.follow(batch), task.answer(batch)
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values)
    assert not torch.allclose(whole["scores"], expected["scores"])


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_the_surest_quarter_turn_is_the_one_with_the_highest_peaks(turns):
    """A network that sees the better, the higher something is."""
    images = torch.zeros(2, 3, *SQUARE)
    images[0, 0, 3, 5] = images[0, 1, 4, 20] = images[1, 0, 2, 9] = images[1, 1, 6, 9] = 1

    def network(given):
        return given[:, :2] * torch.linspace(1, 0.1, 32)[:, None]

    found = surest_turns(network, torch.rot90(images, turns, (-2, -1)))
    assert found.tolist() == [-turns % 4] * 2
    heatmaps = network(turned(torch.rot90(images, turns, (-2, -1)), found))
    torch.testing.assert_close(heatmaps, images[:, :2] * torch.linspace(1, 0.1, 32)[:, None])
