import numpy as np
import pytest
import torch

import vitrail
from vitrail.errors import DataError
from vitrail.study.maps.captures import capture
from vitrail.study.quality.probes import RIDGE, features, few_shot, nearest_neighbours

KINDS = [{}, {"pool": "mean"}, {"pool": "attention"}, {"final_norm": "pooled", "pool": "mean"}]
TINY = {"image_size": (24, 16), "patch_size": 4, "dim": 16, "depth": 3, "heads": 2, "mlp_dim": 32, "num_classes": 5}


def clouds(count, apart=3.0, classes=4, dim=12):
    """Points around a middle of each class, and their classes."""
    random = np.random.default_rng(0)
    labels = np.arange(count) % classes
    return random.standard_normal((count, dim)) + apart * np.eye(dim)[labels], labels


def test_few_shot_equals_the_normal_equations():
    x, y = clouds(80, apart=1.0)
    test, expected = x[40:], y[40:]
    accuracies = []
    for draw in range(3):
        random = np.random.default_rng((7, draw))
        chosen = np.concatenate([random.permutation(np.flatnonzero(y[:40] == c))[:5] for c in range(4)])
        shown, mean, deviation = x[chosen], x[chosen].mean(axis=0), x[chosen].std(axis=0)
        a = (shown - mean) / deviation
        targets = 2.0 * np.eye(4)[y[chosen]] - 1
        weights = np.linalg.solve(a.T @ a + RIDGE * 12 * np.eye(12), a.T @ (targets - targets.mean(axis=0)))
        guesses = ((test - mean) / deviation @ weights + targets.mean(axis=0)).argmax(axis=1)
        accuracies.append((guesses == expected).mean())
    found = few_shot(x[:40], y[:40], test, expected, shots=5, draws=3, seed=7)
    assert found.accuracies == pytest.approx(accuracies)
    assert found.mean == pytest.approx(np.mean(accuracies))
    assert found.spread == pytest.approx(np.std(accuracies, ddof=1))


def test_too_many_shots_are_refused():
    x, y = clouds(8)
    with pytest.raises(DataError, match="2 images for 3 shots"):
        few_shot(x, y, x, y, shots=3)


def test_neighbours_are_near_in_direction_and_count_the_more_the_nearer():
    degrees, lengths, labels = np.array([1.0, 40.0, 41.0, 80.0]), np.array([9.0, 1.0, 1.0, 1.0]), np.array([0, 1, 1, 1])
    train = lengths[:, None] * np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)
    assert nearest_neighbours(train, labels, np.array([[1.0, 0.0]]), np.array([0]), count=3) == 1


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_features_are_what_the_head_reads_and_the_class_token_or_mean_of_every_layer(fields):
    model = vitrail.create_model("ViT-Ti/4", **{**TINY, **fields}).eval()
    images = torch.randn(4, 3, 24, 16)
    found = features(model, images.split(3))
    with torch.no_grad(), capture(model, "head.input", "blocks.1.output") as seen:
        model(images)
    tokens = seen["blocks.1.output"]
    assert len(found) == 4
    np.testing.assert_allclose(found[-1], seen["head.input"], atol=1e-5)
    np.testing.assert_allclose(found[1], tokens.mean(dim=1) if fields else tokens[:, 0], atol=1e-5)
