"""Heads on frozen features against scikit-learn, and what holds of them by themselves."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier

from vitrail.tasks.probe import SCALES, Centred, linear_heads, neighbours, ridge_heads


def drawn(classes: int = 3, count: int = 60, dim: int = 7, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features around a centre for each class, far from 0 and of unequal sizes, and the classes."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, dim, generator=random)
    noise = torch.randn(count, dim, generator=random)
    return (centres[labels] + noise) * torch.linspace(0.1, 5, dim) + 3, labels


@pytest.mark.parametrize("penalty", [0.01, 0.3])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_linear_head_is_scikit_learns_logistic_regression(classes, penalty):
    features, labels = drawn(classes)
    x = Centred(features).features.numpy()
    theirs = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-10, max_iter=10_000).fit(x, labels.numpy())
    (head,) = linear_heads(features, labels, F.cross_entropy, classes=classes, penalties=[penalty])
    expected = theirs.predict_log_proba(x)
    if classes == 2:  # theirs has one row of weights for two classes, whose norm is twice that of our two
        (head,) = linear_heads(features, labels, F.cross_entropy, classes=2, penalties=[2 * penalty])
    np.testing.assert_allclose(head(features).log_softmax(dim=1).numpy(), expected, atol=1e-3)


def test_a_linear_head_for_several_labels_answers_for_each_class_by_itself():
    features, labels = drawn(3)
    shares = torch.stack([labels == 0, labels < 2], dim=1).float()
    loss = F.binary_cross_entropy_with_logits
    (both,) = linear_heads(features, shares, loss, classes=2, penalties=[0.1])
    for one in range(2):
        (alone,) = linear_heads(features, shares[:, one : one + 1], loss, classes=1, penalties=[0.2])
        torch.testing.assert_close(both(features)[:, one : one + 1], alone(features), atol=1e-3, rtol=0)


@pytest.mark.parametrize("ridge", [0.01, 1.0, 50.0])
def test_ridge_is_scikit_learns(ridge):
    features, labels = drawn()
    x = Centred(features).features.numpy()
    targets = np.where(labels.numpy()[:, None] == np.arange(3), 1.0, -1.0)
    theirs = Ridge(alpha=ridge * len(x)).fit(x, targets)
    heads = list(ridge_heads(features, labels, classes=3, ridges=[ridge]))
    assert len(heads) == len(SCALES)
    for head, scale in zip(heads, SCALES, strict=True):
        np.testing.assert_allclose(head(features).numpy(), scale * theirs.predict(x), atol=2e-4 * scale)


def test_ridge_and_votes_for_shares_of_one_class_are_those_for_its_index():
    features, labels = drawn()
    shares = F.one_hot(labels, 3).float()
    for one, other in zip(ridge_heads(features, labels, classes=3), ridge_heads(features, shares, classes=3), strict=True):
        torch.testing.assert_close((one.weight, one.bias), (other.weight, other.bias))
    for known in (labels, shares):
        torch.testing.assert_close(
            neighbours(features, known, features[:5], classes=3),
            neighbours(features, labels, features[:5], classes=3),
            rtol=1e-5,
            atol=1e-4,
        )


def test_features_that_do_not_vary_and_more_of_them_than_images_are_no_trouble():
    features = torch.cat([torch.randn(6, 20, generator=torch.Generator().manual_seed(1)), torch.full((6, 3), 7.0)], dim=1)
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    for head in (*linear_heads(features, labels, F.cross_entropy, classes=2), *ridge_heads(features, labels, classes=2)):
        assert head(features).isfinite().all()
    assert torch.equal(next(ridge_heads(torch.ones(4, 5), labels[:4], classes=2))(torch.ones(1, 5)), torch.zeros(1, 2))


def test_the_vote_of_neighbours_is_scikit_learns_with_the_same_weights():
    features, labels = drawn(count=90)
    known, queries = features[:60], features[60:]
    theirs = KNeighborsClassifier(20, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07))
    expected = theirs.fit(known.numpy(), labels[:60].numpy()).predict_proba(queries.numpy())
    found = neighbours(known, labels[:60], queries, classes=3).sigmoid()
    np.testing.assert_allclose(found.numpy(), expected.clip(1e-4, 1 - 1e-4), atol=1e-4)
