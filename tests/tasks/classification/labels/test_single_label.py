"""Loss and metrics of classification against torch, scikit-learn and hand calculations."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import log_loss, top_k_accuracy_score
from sklearn.utils.class_weight import compute_class_weight
from torch.profiler import ProfilerActivity, profile

from vitrail.tasks.classification.labels.multi_label import MultiLabelMetrics
from vitrail.tasks.classification.labels.single_label import Classification, LabelMetrics, class_weights

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.2, 0.1], [-1.0, 3.0, 0.0], [0.0, 0.0, 4.0]])


def task(**arguments) -> Classification:
    """A task without a model, for what depends on logits alone."""
    return Classification(None, None, ["a", "b", "c"], **arguments)


def test_the_loss_is_the_cross_entropy_of_scikit_learn():
    labels = torch.tensor([0, 2, 1, 2])
    expected = log_loss(labels.numpy(), LOGITS.double().softmax(1).numpy(), labels=[0, 1, 2])
    assert task().loss(LOGITS, labels).item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_mixed_targets_is_the_mixture_of_the_losses():
    one, other, share = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 2]), 0.3
    mixed = share * F.one_hot(one, 3).float() + (1 - share) * F.one_hot(other, 3).float()
    smooth = task(label_smoothing=0.1)
    expected = share * smooth.loss(LOGITS, one) + (1 - share) * smooth.loss(LOGITS, other)
    torch.testing.assert_close(smooth.loss(LOGITS, mixed), expected)


def test_weights_make_every_class_weigh_the_same():
    labels = np.array([0] * 6 + [1] * 3 + [2])
    weights = class_weights([6, 3, 1], 10)
    np.testing.assert_allclose(weights.numpy(), compute_class_weight("balanced", classes=np.arange(3), y=labels), rtol=1e-6)
    assert weights[torch.from_numpy(labels)].mean().item() == pytest.approx(1)


def test_without_smoothing_the_weights_are_torchs_also_of_mixed_images():
    labels, weights = torch.tensor([0, 2, 1, 2]), torch.tensor([0.5, 3.0, 1.0])
    mixed = 0.7 * F.one_hot(labels, 3) + 0.3 * F.one_hot(labels.flip(0), 3)
    for targets in (labels, mixed):
        expected = F.cross_entropy(LOGITS, targets, weight=weights, reduction="sum") / 4
        torch.testing.assert_close(task(weights=weights).loss(LOGITS, targets), expected)


@pytest.mark.parametrize("shares", [False, True])
def test_the_smoothed_share_of_a_rare_class_does_not_outweigh_the_true_class(shares):
    """The best answer to all images of a class, of 990 of one and 10 of the other, is the smoothed label."""
    balanced, labels = task(label_smoothing=0.1, weights=class_weights([990, 10], 1000)), torch.arange(2)
    logits = torch.tensor([[0.95, 0.05], [0.05, 0.95]]).log().requires_grad_()
    loss = balanced.loss(logits, F.one_hot(labels).float() if shares else labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.zeros(2, 2), atol=1e-5, rtol=0)


def test_a_hit_is_the_surest_class_and_of_a_mixed_image_the_larger_share():
    assert task().hits(LOGITS, torch.tensor([0, 2, 1, 2])) == 3
    assert task().hits(LOGITS, torch.tensor([[0.6, 0.4, 0], [0.4, 0.6, 0], [0.0, 0.9, 0.1], [0.5, 0.1, 0.4]])) == 2


def random_answers(seed: int, images: int = 40, classes: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(images, classes, generator=random) * 3, torch.randint(classes, (images,), generator=random)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), classes=st.integers(2, 9), size=st.integers(1, 50))
@example(seed=0, classes=5, size=7)
@example(seed=0, classes=6, size=7)
def test_metrics_are_those_of_scikit_learn_whatever_the_batches(seed, classes, size):
    logits, labels = random_answers(seed, classes=classes)
    metrics = LabelMetrics(keep=True)
    for part, true in zip(logits.split(size), labels.split(size), strict=True):
        metrics.update({"logits": part}, {"images": part, "labels": true})
    found, names = metrics.scores(), range(classes)
    assert list(found) == ["top1", *(["top5"] if classes > 5 else []), "loss", "images"] and found["images"] == 40
    assert found["loss"] == pytest.approx(log_loss(labels, softmax(logits.double().numpy(), axis=1), labels=names))
    assert found["top1"] == metrics.score == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    if classes > 5:  # of five, one of the five surest is always the true one
        assert found["top5"] == pytest.approx(top_k_accuracy_score(labels, logits.numpy(), k=5, labels=names))
    assert torch.equal(metrics.logits, logits) and torch.equal(metrics.labels, labels)
    assert torch.equal(metrics.probabilities, logits.softmax(dim=1))
    true = [row[label] for row, label in zip(softmax(logits.double().numpy(), axis=1), labels, strict=True)]
    assert metrics.certainty == pytest.approx(np.mean(true), rel=1e-5)


def test_metrics_keep_no_answers_unless_asked_to():
    logits, labels = random_answers(0)
    metrics = LabelMetrics()
    metrics.update({"logits": logits}, {"images": logits, "labels": labels})
    held = [value for value in vars(metrics).values() if isinstance(value, torch.Tensor | list)]
    assert metrics.kept is None and not held


@pytest.mark.parametrize("metrics", [LabelMetrics(keep=True), MultiLabelMetrics()], ids=["one", "several"])
def test_probabilities_take_the_memory_of_one_copy(metrics):
    for _ in range(4):
        metrics.kept.append((torch.zeros(64, 128), torch.zeros(64, dtype=torch.int64)))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        made = metrics.probabilities
    taken = sum(event.self_cpu_memory_usage for event in found.key_averages() if event.self_cpu_memory_usage > 0)
    assert made.nbytes <= taken < 1.5 * made.nbytes
