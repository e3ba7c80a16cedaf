"""Where models of stages look, and how far: against loops over single patches."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from test_contract import tiny
from vitrail.data.items import Item
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Observer
from vitrail.study.maps.attention import attention_map
from vitrail.study.maps.captures import capture
from vitrail.study.maps.stages import looked_at, most_weights, stage_distances, stage_maps
from vitrail.study.sections import stages as stage_sections
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.study_images import Subjects

WINDOW = 3
GRID = (5, 7)
"""Padded to 6×9, which are two by three windows."""


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 10, 14, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def swin():
    return tiny("Swin", patch_size=2, depths=(2,), heads=(2,))


def weights_of(model, images):
    with torch.no_grad(), capture(model, "stages.*.**.weights") as seen:
        model(images)
    return [weights.double().numpy() for weights in seen.values()]


def in_window(row, column, *, shift):
    """Which window a place is in, and which place of it."""
    down, across = (row - shift) % 6, (column - shift) % 9
    return 3 * (down // WINDOW) + across // WINDOW, WINDOW * (down % WINDOW) + across % WINDOW


def pairs(*, shift):
    """All places with those that share a window: row and column, window and place of it, for both."""
    everywhere = [(place, in_window(*place, shift=shift)) for place in np.ndindex(GRID)]
    for query, (window, asks) in everywhere:
        yield query, window, asks, [(key, answers) for key, (other, answers) in everywhere if other == window]


def test_a_map_of_windows_is_the_sum_over_all_queries_of_what_they_give(swin, images):
    weights = weights_of(swin, images)[1]
    expected = np.zeros((2, *GRID))
    for _, window, asks, keys in pairs(shift=1):
        for key, answers in keys:
            expected[:, *key] += weights[:, window, :, asks, answers].mean(axis=1)
    (found,) = stage_maps(swin, images)
    assert expected.std() > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_distances_within_windows_are_a_mean_over_all_queries(swin, images):
    every, found = weights_of(swin, images), stage_distances(swin, images)
    for weights, shift, block in zip(every, (0, 1), found, strict=True):
        for head in range(2):
            means = []
            for query, window, asks, keys in pairs(shift=shift):
                away = [2 * math.dist(query, key) for key, _ in keys]
                means += [np.average(away, weights=[image[window, head, asks, k] for _, k in keys]) for image in weights]
            assert block[head].item() == pytest.approx(np.mean(means), rel=1e-5)


STEP = {"PVT": (2, 2), "PVTv2": (2, 2), "CvT": (1, 2)}
"""Pixels from one place to the next, in both stages of the models of the contract."""
MIDDLE = {"PVT": 0.5, "PVTv2": 0.5, "CvT": 0.0}
"""Where a key of the first stage stands between the places that it is made of, two by two."""


@pytest.mark.parametrize("kind", STEP)
def test_maps_of_coarser_keys_are_means_over_queries_and_at_last_the_class_tokens_own(kind, images):
    model = tiny(kind)
    first, *_, last = weights_of(model, images)
    found = stage_maps(model, images)
    of_all = first.mean(axis=(1, 2)) * first.shape[3]
    np.testing.assert_allclose(found[0].flatten(1), of_all, rtol=1e-5)
    prefix = 0 if kind == "PVTv2" else 1
    read = last.mean(axis=1)[:, 0, 1:] if prefix else last.mean(axis=(1, 2))
    np.testing.assert_allclose(found[-1].flatten(1), read * (last.shape[3] - prefix), rtol=1e-5)
    assert read.std() > 1e-3 and of_all.std() > 1e-3


@pytest.mark.parametrize("kind", STEP)
def test_distances_to_coarser_keys_are_to_the_middle_of_what_they_are_made_of(kind):
    model, images = tiny(kind), torch.randn(2, 3, 16, 24, generator=torch.Generator().manual_seed(0))
    weights, pixels = weights_of(model, images)[0], STEP[kind][0]
    queries = list(np.ndindex(16 // pixels, 24 // pixels))
    keys = [(2 * row + MIDDLE[kind], 2 * column + MIDDLE[kind]) for row, column in np.ndindex(8 // pixels, 12 // pixels)]
    away = pixels * np.array([[math.dist(query, key) for key in keys] for query in queries])
    expected = (weights * away).sum(axis=3).mean(axis=(0, 2))
    np.testing.assert_allclose(stage_distances(model, images)[0], expected, rtol=1e-5)


def test_where_a_small_grid_is_pooled_to_a_larger_one_a_map_is_the_mean_of_the_keys_of_a_place():
    places, twice = torch.tensor([[0.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    torch.testing.assert_close(looked_at(torch.full((1, 2, 2, 3), 1 / 3), places, twice), torch.ones(1, 1, 2))
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])[None, None]
    torch.testing.assert_close(looked_at(weights, places, twice), 3 / 2 * torch.tensor([[[1.2 / 2, 0.8]]]))


def test_the_largest_attention_is_known_before_it_is_computed(swin, images):
    for model in (swin, tiny("PVT"), tiny("CvT")):
        found = most_weights(model, images[:1])
        prefixed = max(weights[0].size for weights in weights_of(model, images))
        assert found <= prefixed < 1.3 * found  # without the class token


@pytest.mark.parametrize(("heads", "told"), [((2, 3), ""), ((2, 15), "Of 15 heads 14 are drawn; all of them are in maps.npz")])
def test_how_many_heads_of_a_windows_bias_are_drawn_is_told(heads, told, tmp_path):
    model = vitrail.create_model("Swin-T", dim=30, depths=(1, 1), heads=heads, image_size=16, patch_size=4, window_size=2)
    trained = vitrail.TrainedModel(model.eval(), list("ab"), vitrail.Preparation.standard((16, 16)))
    item = Item("a", Image.new("RGB", (16, 16)), 0)
    study = StudyContext(tmp_path, trained, Subjects([item]), None, Observer())
    words = stage_sections.positions(study)
    assert told in words and ("are drawn" in words) == bool(told)
    assert study.maps["relative-bias-1"].shape[0] == heads[1]


def test_models_of_another_kind_are_refused(swin, images):
    with pytest.raises(ConfigError, match="ViT has no stages with attention"):
        stage_maps(tiny("ViT"), images)
    with pytest.raises(ConfigError, match="ResNet has no stages with attention"):
        stage_distances(tiny("ResNet"), images)
    with pytest.raises(ConfigError, match="Swin has no attention to the whole image"):
        attention_map(swin, images)
    with pytest.raises(ConfigError, match="evaluation mode"):
        stage_maps(tiny("Swin").train(), images)
