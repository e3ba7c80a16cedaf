"""Metrics of features equal scikit-learn's and the papers' formulas, and tell a collapse."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from vitrail.runtime.processes import ALONE
from vitrail.tasks.features.feature_metrics import (
    PENALTY,
    FeatureMetrics,
    effective_rank,
    halves,
    nearest_accuracy,
    probe_accuracy,
    uniformity,
)
from vitrail.tasks.probe import Centred


def clusters(count: int = 200, spread: float = 1.2) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (N, 8) around a centre for each of four classes."""
    torch.manual_seed(0)
    labels = torch.randint(4, (count,))
    return torch.randn(4, 8)[labels] + spread * torch.randn(count, 8), labels


def test_neighbours_vote_as_scikit_learns_do():
    features, labels = clusters()
    unit = torch.nn.functional.normalize(features, dim=1).numpy()
    votes = []
    for number in range(len(unit)):
        others = np.delete(np.arange(len(unit)), number)
        by_cosine = KNeighborsClassifier(20, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / 0.07))
        votes.append(by_cosine.fit(unit[others], labels[others]).predict(unit[number : number + 1])[0])
    assert nearest_accuracy(features, labels, 4) == pytest.approx(np.mean(np.array(votes) == labels.numpy()))


def test_the_probe_is_scikit_learns():
    features, labels = clusters()
    right = 0
    for fitted in halves(labels):
        x = Centred(features[fitted])
        other = (features[~fitted].double() - x.mean) / x.scale
        theirs = LogisticRegression(C=1 / (PENALTY * len(x.features)), max_iter=1000, tol=1e-9)
        right += (theirs.fit(x.features, labels[fitted]).predict(other) == labels[~fitted].numpy()).sum()
    assert probe_accuracy(features, labels, 4) == pytest.approx(right / len(features)) and right > 0.5 * len(features)


@pytest.mark.parametrize("labels", [torch.arange(40) % 4, torch.arange(40) // 10, torch.tensor([0, 1, 1, 2, 2, 2])])
def test_each_half_for_the_probe_has_half_of_each_class(labels):
    first, second = halves(labels)
    assert torch.equal(first, ~second)
    for number in labels.unique():
        assert abs(int(first[labels == number].sum()) - int(second[labels == number].sum())) <= 1


@pytest.mark.parametrize("directions", [1, 3, 8])
def test_rank_is_the_number_of_equal_directions(directions):
    q, _ = torch.linalg.qr(torch.randn(50, 8, generator=torch.Generator().manual_seed(0)))
    q[:, directions:] = 0
    assert effective_rank(q) == pytest.approx(directions, abs=0.01)


def test_uniformity_is_zero_for_one_vector_and_minus_eight_for_opposite_ones():
    same = torch.ones(5, 3)
    assert uniformity(same) == pytest.approx(0, abs=1e-9)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert uniformity(opposite) == pytest.approx(-2 * 4)


def measured(outputs: torch.Tensor, features: torch.Tensor | None = None, batch: int = 16) -> FeatureMetrics:
    """Return the metrics of images with these probabilities, in batches."""
    metrics, count = FeatureMetrics(0), len(outputs)
    features = torch.randn(count, 4) if features is None else features
    for at in range(0, count, batch):
        part = slice(at, at + batch)
        answers = {"features": features[part], "outputs": outputs[part], "loss": torch.ones(len(outputs[part]))}
        metrics.update(answers, {"number": torch.arange(count)[part]})
    metrics.reduce(ALONE)
    return metrics


def test_information_is_everything_for_an_output_each_and_nothing_for_one_or_none():
    assert measured(torch.eye(32)).information == pytest.approx(1)
    assert measured(torch.eye(32)[torch.zeros(40, dtype=torch.long)]).information == pytest.approx(0, abs=1e-9)
    assert measured(torch.full((40, 32), 1 / 32)).information == pytest.approx(0, abs=1e-9)
    half = torch.eye(32)[torch.arange(64) % 2]
    assert measured(half).information == pytest.approx(math.log(2) / math.log(32))


def test_a_collapse_is_told_with_what_to_change():
    assert measured(torch.eye(32)).collapse() is None
    for collapsed in (torch.full((40, 32), 1 / 32), torch.eye(32)[[3] * 40]):
        what, hint = measured(collapsed).collapse()
        assert "collapsed" in what and "--task.teacher-temperature" in hint


def test_scores_do_not_depend_on_batches_or_their_order():
    features, labels = clusters(60)
    p = torch.rand(60, 8).softmax(dim=1)
    found = []
    for order in (torch.arange(60), torch.randperm(60)):
        metrics = FeatureMetrics(4, keep=True)
        for part in order.split(7 if found else 25):
            answers = {"features": features[part], "outputs": p[part], "loss": torch.ones(len(part))}
            metrics.update(answers, {"number": part, "labels": labels[part]})
        metrics.reduce(ALONE)
        found.append(metrics.scores())
    assert found[0] == pytest.approx(found[1])
    assert found[0].keys() == {"knn", "linear_accuracy", "rankme", "uniformity", "loss", "images"}


def test_of_many_images_some_are_kept_and_all_are_counted(monkeypatch):
    monkeypatch.setattr("vitrail.tasks.features.feature_metrics.MOST", 10)
    metrics = FeatureMetrics(0)
    metrics.take_items(range(100))
    metrics.update(
        {"features": torch.randn(100, 4), "outputs": torch.full((100, 3), 1 / 3), "loss": torch.ones(100)},
        {"number": torch.arange(100)},
    )
    metrics.reduce(ALONE)
    assert len(metrics.features) == 10 and metrics.scores()["images"] == 100
