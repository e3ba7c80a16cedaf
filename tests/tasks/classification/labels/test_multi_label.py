"""Loss and metrics of images with several labels against torch, scikit-learn and hand calculations."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from vitrail.tasks.classification.labels.multi_label import (
    MultiLabel,
    MultiLabelMetrics,
    best_thresholds,
    choose_thresholds,
    scanty_thresholds,
)
from vitrail.tasks.classification.labels.single_label import class_weights

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.2, 0.1], [-1.0, 3.0, 0.0], [0.0, 0.0, 4.0]])
ANSWERS = torch.tensor([[3.0, 1.0, -2.0], [0.0, 2.0, 1.0], [-1.0, -3.0, 0.5], [1.0, 2.0, 3.0]])
LABELS = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]])


def task(**arguments) -> MultiLabel:
    """A task without a model, for what depends on logits alone."""
    return MultiLabel(None, None, ["a", "b", "c"], **arguments)


def metrics_of(logits: torch.Tensor, labels: torch.Tensor, size: int = 3) -> MultiLabelMetrics:
    metrics = MultiLabelMetrics()
    for part, true in zip(logits.split(size), labels.split(size), strict=True):
        metrics.update({"logits": part}, {"images": part, "labels": true})
    return metrics


def test_with_several_labels_every_class_is_a_question_of_its_own():
    targets = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    expected = [
        -math.log(1 / (1 + math.exp(-x))) if y else -math.log(1 - 1 / (1 + math.exp(-x)))
        for x, y in zip(LOGITS.flatten().tolist(), targets.flatten().tolist(), strict=True)
    ]
    assert task().loss(LOGITS, targets).item() == pytest.approx(sum(expected) / 12, rel=1e-5)


def test_without_smoothing_the_weights_of_several_labels_are_torchs_also_of_mixed_images():
    weights, mixed = torch.tensor([3.0, 0.5, 2.0]), 0.7 * LABELS + 0.3 * LABELS.flip(0)
    for targets in (LABELS, mixed):
        expected = F.binary_cross_entropy_with_logits(LOGITS, targets, pos_weight=weights)
        torch.testing.assert_close(task(weights=weights).loss(LOGITS, targets), expected)


def test_the_smoothed_share_of_a_rare_class_is_not_weighed_in_images_that_do_not_show_it():
    """The best answer to images that show it and to others, of 10 in 1,000 that do, is the smoothed label."""
    weights = class_weights([10], 1000, multi_label=True)
    logits = torch.logit(torch.tensor([[0.05], [0.95]])).requires_grad_()
    loss = task(label_smoothing=0.1, weights=weights).loss(logits, torch.tensor([[0.0], [1.0]]))
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.zeros(2, 1), atol=1e-5, rtol=0)


def test_one_of_several_labels_among_the_best_guesses_is_a_hit_and_an_image_without_labels_is_none():
    found = metrics_of(ANSWERS, LABELS).scores()  # surest first: 0 1 2, 1 2 0, 2 0 1, 2 1 0
    assert found["top1"] == 2 / 4 and "top5" not in found
    more = [torch.cat([table, torch.full((4, 3), fill)], dim=1) for table, fill in ((ANSWERS, -9.0), (LABELS, 0.0))]
    assert metrics_of(*more).scores()["top5"] == 3 / 4


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_average_precision_is_the_mean_over_the_classes_that_are_shown(seed):
    random = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(40, 7, generator=random) * 3, (torch.rand(40, 7, generator=random) < 0.3).float()
    labels[:, 2] = 0
    metrics = metrics_of(logits, labels)
    each = [
        average_precision_score(labels[:, i].numpy(), logits[:, i].numpy()) for i in range(7) if i != 2 and labels[:, i].any()
    ]
    assert metrics.mean_average_precision == pytest.approx(float(np.mean(each)))
    assert metrics.scores()["map"] == metrics.mean_average_precision
    shown = labels.any(dim=0).numpy()
    assert metrics.scores()["f1"] == pytest.approx(
        f1_score(labels[:, shown], logits[:, shown] > 0, average="macro", zero_division=0)
    )
    assert metrics.certainty == pytest.approx(logits.sigmoid()[labels > 0].mean().item())


def test_average_precision_without_any_label_is_a_number_json_can_hold():
    found = metrics_of(ANSWERS, torch.zeros(4, 3))
    expected = {"top1": 0.0, "loss": F.softplus(ANSWERS).mean().item(), "images": 4, "map": 0.0, "f1": 0.0}
    assert found.scores() == pytest.approx(expected) and found.certainty == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_no_threshold_gives_a_better_f1(seed):
    random = np.random.default_rng(seed)
    true = random.random((25, 2)) < 0.4
    true[0] = True
    probabilities = random.integers(0, 11, (25, 2)) / 10  # with ties
    for i, threshold in enumerate(best_thresholds(true, probabilities)):
        f1 = [
            2 * (said & true[:, i]).sum() / (said.sum() + true[:, i].sum())
            for said in probabilities[:, i] >= np.linspace(0, 1, 41)[:, None]
        ]
        assert f1_score(true[:, i], probabilities[:, i] >= threshold) == pytest.approx(max(f1))


def test_a_threshold_of_few_images_is_drawn_to_one_half_and_named():
    true = np.zeros((34, 2), bool)
    true[:3, 0] = true[:15, 1] = True
    probabilities = np.where(true, 0.04, 0.02)
    probabilities[0, 1] = 0.5
    (rare, frequent), (low, _) = choose_thresholds(true, probabilities), best_thresholds(true, probabilities)
    assert low == pytest.approx(0.03) and rare == pytest.approx(1 / (1 + (0.97 / 0.03) ** (3 / 8))) and frequent < rare
    assert scanty_thresholds(true, ["rare", "frequent"]).endswith("unsure: rare (3)")
    assert scanty_thresholds(true[:, 1:], ["frequent"]) == ""


def test_f1_is_of_what_reaches_its_threshold():
    metrics = MultiLabelMetrics([0.9, 0.5, 0.8])
    metrics.update({"logits": LOGITS}, {"images": LOGITS, "labels": LABELS})
    said = LOGITS.sigmoid().numpy() >= [0.9, 0.5, 0.8]
    shown = [0, 2]  # no image shows the other class
    assert metrics.scores()["f1"] == pytest.approx(f1_score(LABELS[:, shown], said[:, shown], average="macro", zero_division=0))
