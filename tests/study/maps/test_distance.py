import math

import numpy as np
import pytest
import torch

import vitrail
from vitrail.study.maps.captures import capture
from vitrail.study.maps.distance import (
    mean_attention_distances,
    patch_distances,
    receptive_fields,
    uniform_distance,
)


def test_distances_between_patches_by_hand():
    found = patch_distances((2, 2), (3, 4))
    np.testing.assert_allclose(found, [[0, 4, 3, 5], [4, 0, 5, 3], [3, 5, 0, 4], [5, 3, 4, 0]], atol=1e-5)


def test_the_mean_distance_equals_a_sum_over_all_pairs():
    model = vitrail.create_model(
        "ViT-Ti/4", image_size=(24, 16), patch_size=4, dim=16, depth=2, heads=2, mlp_dim=32, num_classes=5, registers=1
    ).eval()
    images = torch.randn(3, 3, 24, 16)
    found = mean_attention_distances(model, images)
    with torch.no_grad(), capture(model, "**.weights") as seen:
        model(images)
    for layer in range(2):
        weights = seen[f"blocks.{layer}.attention.weights"].double().numpy()
        for head in range(2):
            means = []
            for image in range(3):
                for query in range(24):
                    row = weights[image, head, 2 + query, 2:]
                    away = [4 * math.hypot(query // 4 - key // 4, query % 4 - key % 4) for key in range(24)]
                    means.append(np.average(away, weights=row))
            assert found[layer, head].item() == pytest.approx(np.mean(means), rel=1e-6)


@pytest.mark.parametrize("field", [11, 19, 27, 448])
def test_one_that_sees_a_small_field_has_the_mean_distance_from_its_middle(field):
    middle = field * (math.sqrt(2) + math.log(1 + math.sqrt(2))) / 6
    assert uniform_distance((100_000, 100_000), field) == pytest.approx(middle, rel=0.002)
    assert uniform_distance((224, 384), 11) == pytest.approx(4.21, rel=0.02)


def test_receptive_fields_of_a_resnet_50_are_those_that_are_published():
    fields = receptive_fields()
    assert fields[0] == 11  # the maximum behind the root
    assert fields[-1] == 483  # Araujo et al. 2019, table of architectures
    assert len(fields) == 1 + 16
