"""Joints become heatmaps and joints again: by hand, by transformers and by SciPy."""

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from transformers.models.vitpose.image_processing_pil_vitpose import get_keypoint_predictions, post_dark_unbiased_data_processing
from transformers.models.vitpose.modeling_vitpose import flip_back

from vitrail.parts.vision.heatmap_decoder import pixels_per_place
from vitrail.tasks.pose.heatmaps import decode, encode, mirrored, smoothed

IMAGE, HEATMAP = (256, 192), (64, 48)


def joints(count: int, seed: int = 0) -> torch.Tensor:
    """Anywhere in the image, between pixels."""
    random = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 2, generator=random, dtype=torch.double) * torch.tensor([IMAGE[1] - 1, IMAGE[0] - 1])


def by_hand(joint, image, heatmap, sigma):
    """Pixel by pixel, as the authors of UDP have it."""
    target = np.zeros(heatmap)
    steps = [(image[1] - 1) / (heatmap[1] - 1), (image[0] - 1) / (heatmap[0] - 1)]
    x, y = joint[0] / steps[0], joint[1] / steps[1]
    near_x, near_y = int(x + 0.5), int(y + 0.5)
    for row in range(heatmap[0]):
        for column in range(heatmap[1]):
            if abs(column - near_x) <= 3 * sigma and abs(row - near_y) <= 3 * sigma:
                target[row, column] = math.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * sigma**2))
    return target


@pytest.mark.parametrize("joint", [(0, 0), (95.3, 127.9), (191, 255), (-20, 30), (200, 260), (-80, 5), (95, 400)])
@pytest.mark.parametrize(
    ("image", "heatmap", "sigma"), [((256, 192), (64, 48), 2), ((64, 64), (16, 16), 1), ((96, 128), (48, 32), 3)]
)
def test_a_heatmap_is_a_bell_around_the_joint_and_zero_elsewhere(joint, image, heatmap, sigma):
    maps, shown = encode(torch.tensor([joint], dtype=torch.double), image, heatmap, sigma=sigma)
    expected = by_hand(joint, image, heatmap, sigma)
    np.testing.assert_allclose(maps[0].numpy(), expected, atol=1e-12)
    assert shown.tolist() == [expected.any()]


@pytest.mark.parametrize("sigma", [0, 0.8, 2])
def test_ten_thousand_joints_come_back_within_a_tenth_of_a_pixel(sigma):
    given = joints(10_000)
    maps, shown = encode(given, IMAGE, HEATMAP)
    found, scores = decode(maps, sigma=sigma)
    error = (found * pixels_per_place(IMAGE, HEATMAP) - given).norm(dim=-1)
    assert shown.all() and (scores > 0.8).all()
    assert error.mean() < 0.01 and error.max() < 0.1


def test_a_map_that_is_no_bell_gives_its_highest_place():
    maps = torch.exp(0.1 * torch.arange(12.0)).expand(1, 1, 16, 12).clone()  # whose logarithm is a slope, without a peak
    maps[..., 8, 11] += 1e-4
    found, _ = decode(maps, sigma=0)
    assert found.tolist() == [[[11.0, 8.0]]]


@pytest.mark.parametrize("exact_rim", [True, False])
def test_one_map_without_a_parabola_leaves_the_others_as_they_are(exact_rim):
    maps, _ = encode(joints(12).expand(12, 3, 2), IMAGE, HEATMAP)
    expected, _ = decode(maps, sigma=0, exact_rim=exact_rim)
    odd = maps.float().clone()
    odd[3, 1] = 0
    odd[3, 1, range(3), range(3)] = 1  # all entries of H are a or -a at the first place, and at the next one
    found, _ = decode(odd, sigma=0, exact_rim=exact_rim)
    assert found.isfinite().all()
    found[3, 1] = expected[3, 1].float()
    torch.testing.assert_close(found, expected.float(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("exact_rim", [True, False])
def test_joints_are_read_as_transformers_reads_them_to_a_thousandth_of_a_pixel(exact_rim):
    """By its deviation of 0.8 places; at the rim, where its places are wrong, only with ``exact_rim`` off."""
    maps, _ = encode(joints(100).expand(100, 3, 2), IMAGE, HEATMAP)
    maps = maps + 0.05 * torch.rand(maps.shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    peaks, scores = get_keypoint_predictions(maps.numpy())
    theirs = post_dark_unbiased_data_processing(peaks.copy(), maps.numpy(), kernel=11)
    found, ours = decode(maps, sigma=0.8, exact_rim=exact_rim)
    np.testing.assert_allclose(ours.numpy(), scores[..., 0])
    far = np.abs((found.numpy() - theirs) * pixels_per_place(IMAGE, HEATMAP).numpy()).max(axis=-1)  # in pixels
    inside = ((peaks > 5) & (peaks < np.array([HEATMAP[1], HEATMAP[0]]) - 6)).all(axis=-1)
    assert 0.5 < inside.mean() < 0.9 and far[inside].max() < 1e-4
    assert (far[~inside].max() > 1) if exact_rim else (far.max() < 1e-4)


@pytest.mark.parametrize("size", [(64, 48), (7, 5), (3, 12)])
@pytest.mark.parametrize("sigma", [0.8, 2.0])
def test_maps_are_smoothed_as_scipy_smooths_them(size, sigma):
    maps = torch.rand(2, 3, *size, dtype=torch.double)
    expected = scipy.ndimage.gaussian_filter(maps.numpy(), sigma, radius=5, axes=(2, 3))
    np.testing.assert_allclose(smoothed(maps, sigma).numpy(), expected, atol=1e-12)
    assert smoothed(maps, 0) is maps


def test_a_mirrored_answer_is_turned_back_as_transformers_turns_it():
    maps, pairs = torch.rand(2, 5, 4, 6), torch.tensor([[1, 2], [3, 4]])
    assert torch.equal(mirrored(maps, [0, 2, 1, 4, 3]), flip_back(maps, pairs))
