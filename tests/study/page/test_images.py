"""Pictures of what is inside a model."""

import numpy as np
import pytest
from PIL import Image

from vitrail.data.loading.sampler import spread
from vitrail.study.page import images as pictures


def test_an_overlay_is_bright_where_the_map_is_high_and_pale_outside():
    heat = np.array([[0.0, 0.0], [0.0, 1.0]])
    shown = np.asarray(pictures.overlay(Image.new("RGB", (60, 40), "grey"), heat, (10, 0, 50, 40))).astype(int)
    assert shown.shape == (40, 60, 3)
    assert (shown[:, :10].min(), shown[:, 50:].min()) > (180, 180)
    assert shown[38, 48].sum() > shown[2, 12].sum() + 200


def test_beyond_a_map_its_outermost_values_go_on_as_far_as_the_model_saw():
    heat, picture = np.array([[0.0, 1.0], [0.0, 1.0]]), Image.new("RGB", (60, 40), "grey")
    shown = np.asarray(pictures.overlay(picture, heat, (-4, 0, 36, 40), (0, 0, 50, 40))).astype(int)
    assert (shown[:, 40:50] == shown[:1, 49:50]).all() and np.ptp(shown[0, 49]) > 50
    assert (shown[:, :4] == shown[:1, :1]).all() and np.ptp(shown[0, 0]) == 0
    assert shown[:, 50:].min() > 180


@pytest.mark.parametrize(("darkest", "brightest"), [(0, 60), (200, 255)])
def test_an_overlay_neither_blackens_a_dark_picture_nor_hides_what_is_in_it(darkest, brightest):
    stripes = Image.fromarray(np.tile(np.array([darkest, brightest], dtype=np.uint8).repeat(4), (8, 4)))
    heat = np.zeros((2, 4))
    heat[0, 3] = 1.0
    shown = np.asarray(pictures.overlay(stripes, heat, (0, 0, 32, 8)).convert("L")).astype(int)
    assert shown.min() >= 30 and 50 < shown.mean() < 200
    assert np.ptp(shown[6, :8]) > 35


def test_captions_of_mistakes_are_orange():
    figure = pictures.sheet([[Image.new("RGB", (4, 4))]] * 2, ["a"], ["right", "wrong"], wrong=[1])
    assert [axes.xaxis.label.get_color() for axes in figure.axes] == ["black", pictures.ORANGE]


@pytest.mark.parametrize("size", [(1, 4), (4, 1), (1, 1)])
def test_an_overlay_of_a_picture_of_a_pixel_or_two(size):
    box = (0.0, size[1] / 2 - 0.3, float(size[0]), size[1] / 2 + 0.1)
    assert pictures.overlay(Image.new("RGB", size), np.ones((2, 2)), box).size == size


@pytest.mark.parametrize("shape", [(12, 3), (32, 16), (1, 1), (24, 2)])
def test_at_most_fourteen_layers_and_heads_are_drawn(shape):
    figure = pictures.heads(np.random.default_rng(0).random((*shape, 3, 3)))
    assert len(figure.axes) == min(14, shape[0]) * min(14, shape[1])
    labels = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert labels[0] == "0" and labels[-1] == str(shape[0] - 1)


def test_similarity_of_a_large_grid_is_thinned_out_and_every_map_stands_in_its_place():
    maps = np.random.default_rng(0).random((20, 16, 20, 16))
    axes, _ = pictures.similarity(maps).axes  # and the colours' scale
    sheet = axes.images[0].get_array()
    assert [int(label.get_text()) for label in axes.get_yticklabels()] == spread(20, 14)
    np.testing.assert_allclose(sheet[:20, :16], maps[0, 0])
    np.testing.assert_allclose(sheet[-20:, -16:], maps[19, 15])
    assert sheet.shape == (14 * 20 + 13 * 2, 14 * 16 + 13 * 2)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_filters_of_any_number_of_channels_are_drawn(channels):
    figure = pictures.filters(np.random.default_rng(0).standard_normal((9, channels, 4, 4)))
    assert sum(bool(axes.images) for axes in figure.axes) == 9


def test_curves_are_named_and_in_per_cent():
    curves = {"at random": [0.9, 0.4, 0.1], "most relevant first": [0.9, 0.2, 0.1]}
    (axes,) = pictures.occlusion((0, 0.5, 1), curves, "right answers, %").axes
    assert [line.get_label() for line in axes.get_lines()] == list(curves)
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [90, 40, 10])
    assert axes.get_ylabel() == "right answers, %"


def test_distances_have_a_dot_for_every_head_and_reach_from_the_first_layer_to_the_last():
    (axes,) = pictures.distances(np.array([[10.0, 30.0], [50.0, 70.0]]), 116.0, [5.0, 60.0, 110.0]).axes
    lines = {line.get_label().partition(",")[0]: line for line in axes.get_lines()}
    assert lines["a head"].get_xdata().tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(lines["mean of the heads"].get_ydata(), [20, 60])
    np.testing.assert_allclose(lines["ResNet-50"].get_xdata(), [0, 0.5, 1])
