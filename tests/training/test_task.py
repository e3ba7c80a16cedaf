"""The loss against torch, scikit-learn and hand calculations; what counts as right."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight

from vitrail.training.settings import DistillationSettings
from vitrail.training.task import Task, class_weights

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.2, 0.1], [-1.0, 3.0, 0.0], [0.0, 0.0, 4.0]])


def test_the_loss_is_the_cross_entropy_of_scikit_learn():
    labels = torch.tensor([0, 2, 1, 2])
    expected = log_loss(labels.numpy(), LOGITS.double().softmax(1).numpy(), labels=[0, 1, 2])
    assert Task().loss(LOGITS, labels).item() == pytest.approx(expected, rel=1e-5)


def test_shares_of_one_class_are_that_class():
    labels = torch.tensor([0, 2, 1, 2])
    for task in (Task(), Task(label_smoothing=0.2), Task(weights=torch.tensor([1.0, 2.0, 0.5]))):
        torch.testing.assert_close(task.loss(LOGITS, F.one_hot(labels).float()), task.loss(LOGITS, labels))


def test_the_loss_of_mixed_targets_is_the_mixture_of_the_losses():
    one, other, share = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 2]), 0.3
    mixed = share * F.one_hot(one, 3).float() + (1 - share) * F.one_hot(other, 3).float()
    task = Task(label_smoothing=0.1)
    torch.testing.assert_close(task.loss(LOGITS, mixed), share * task.loss(LOGITS, one) + (1 - share) * task.loss(LOGITS, other))


def test_label_smoothing_is_torchs():
    labels = torch.tensor([0, 2, 1, 2])
    torch.testing.assert_close(
        Task(label_smoothing=0.1).loss(LOGITS, labels), F.cross_entropy(LOGITS, labels, label_smoothing=0.1)
    )


def test_weights_make_every_class_weigh_the_same():
    labels = np.array([0] * 6 + [1] * 3 + [2])
    weights = class_weights([6, 3, 1], 10)
    np.testing.assert_allclose(weights.numpy(), compute_class_weight("balanced", classes=np.arange(3), y=labels), rtol=1e-6)
    assert weights[torch.from_numpy(labels)].mean().item() == pytest.approx(1)


def test_the_weighted_loss_of_a_batch_is_the_mean_of_those_of_its_parts():
    labels, task = torch.tensor([0, 2, 1, 2]), Task(weights=torch.tensor([0.5, 3.0, 1.0]))
    halves = [task.loss(LOGITS[i : i + 2], labels[i : i + 2]) for i in (0, 2)]
    torch.testing.assert_close(task.loss(LOGITS, labels), torch.stack(halves).mean())
    single = [task.weights[y] * F.cross_entropy(x[None], y[None]) for x, y in zip(LOGITS, labels, strict=True)]
    torch.testing.assert_close(task.loss(LOGITS, labels), torch.stack(single).mean())


def test_with_several_labels_every_class_is_a_question_of_its_own():
    targets = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    expected = [
        -math.log(1 / (1 + math.exp(-x))) if y else -math.log(1 - 1 / (1 + math.exp(-x)))
        for x, y in zip(LOGITS.flatten().tolist(), targets.flatten().tolist(), strict=True)
    ]
    assert Task(multi_label=True).loss(LOGITS, targets).item() == pytest.approx(sum(expected) / 12, rel=1e-5)


def test_smoothed_answers_of_yes_and_no_move_towards_a_half():
    targets = torch.tensor([[1.0, 0.0]])
    smooth = Task(multi_label=True, label_smoothing=0.2).loss(torch.tensor([[1.5, -0.5]]), targets)
    torch.testing.assert_close(
        smooth, F.binary_cross_entropy_with_logits(torch.tensor([[1.5, -0.5]]), torch.tensor([[0.9, 0.1]]))
    )


def test_with_several_labels_positives_weigh_as_much_as_negatives():
    targets = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    weights = class_weights(targets.sum(0).int().tolist(), 4, multi_label=True)
    assert weights.tolist() == pytest.approx([3, 1 / 3])
    sides = targets * weights, 1 - targets
    torch.testing.assert_close(sides[0].sum(0), sides[1].sum(0))


def test_with_several_labels_a_weight_is_on_what_positives_cost():
    targets, weights = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]), torch.tensor([3.0, 0.5, 2.0])
    yes, no = -LOGITS.sigmoid().log(), -(-LOGITS).sigmoid().log()
    expected = (weights * targets * yes + (1 - targets) * no).mean()
    torch.testing.assert_close(Task(multi_label=True, weights=weights).loss(LOGITS, targets), expected)


def test_a_class_without_images_has_a_finite_weight():
    assert class_weights([4, 0], 4).isfinite().all() and class_weights([4, 0], 4, multi_label=True).isfinite().all()


def test_right_is_the_surest_class():
    assert Task().right(LOGITS, torch.tensor([0, 2, 1, 2])) == 3
    shares = torch.tensor([[0.6, 0.4, 0], [0.4, 0.6, 0], [0.0, 0.9, 0.1], [0.5, 0.1, 0.4]])
    assert Task().right(LOGITS, shares) == 2
    assert Task(multi_label=True).right(LOGITS, torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0]])) == 2
    mixed = torch.tensor([[0.7, 0, 0.3], [0.3, 0.7, 0], [0, 1, 0], [0.4, 0.4, 0.9]])
    assert Task(multi_label=True).right(LOGITS, mixed) == 3


# distillation

TEACHER = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 5.0], [-3.0, 1.0, 1.5], [2.0, 0.0, 1.0]])
TOKEN = torch.tensor([[0.5, 1.0, -2.0], [0.0, 2.0, 0.1], [1.0, 3.0, 0.0], [0.3, 0.2, 0.1]])
LABELS = torch.tensor([0, 2, 1, 2])


def test_soft_distillation_is_equation_2_by_hand():
    settings = DistillationSettings(kind="soft", weight=0.3, temperature=2.0)
    total = 0.0
    for logits, token, teacher, label in zip(*(x.tolist() for x in (LOGITS, TOKEN, TEACHER, LABELS)), strict=True):
        p = [math.exp(x) for x in logits]
        true = -math.log(p[label] / sum(p))
        s, t = ([math.exp(x / 2) for x in row] for row in (token, teacher))
        s, t = ([x / sum(row) for x in row] for row in (s, t))
        divergence = sum(b * math.log(b / a) for a, b in zip(s, t, strict=True))
        total += (0.7 * true + 0.3 * 4 * divergence) / 4
    assert Task(distillation=settings).loss((LOGITS, TOKEN), LABELS, TEACHER).item() == pytest.approx(total, rel=1e-5)


def test_soft_distillation_is_torchs_divergence():
    settings = DistillationSettings(kind="soft", weight=1, temperature=3.0)
    theirs = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=TEACHER / 3), torch.distributions.Categorical(logits=TOKEN / 3)
    )
    torch.testing.assert_close(Task(distillation=settings).loss((LOGITS, TOKEN), LABELS, TEACHER), 9 * theirs.mean())


def test_hard_distillation_is_equation_3():
    expected = (F.cross_entropy(LOGITS, LABELS) + F.cross_entropy(TOKEN, TEACHER.argmax(dim=1))) / 2
    torch.testing.assert_close(Task().loss((LOGITS, TOKEN), LABELS, TEACHER), expected)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_without_a_token_both_terms_are_of_the_only_head(kind):
    task = Task(distillation=DistillationSettings(kind=kind))
    torch.testing.assert_close(task.loss(LOGITS, LABELS, TEACHER), task.loss((LOGITS, LOGITS), LABELS, TEACHER))


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_student_that_answers_as_its_teacher_has_nothing_to_learn_from_it(kind):
    task = Task(distillation=DistillationSettings(kind=kind, weight=1))
    surest = 50 * F.one_hot(TEACHER.argmax(dim=1), 3).float()
    assert task.loss(surest, LABELS, surest).item() == pytest.approx(0, abs=1e-5)


def test_smoothing_and_weights_and_mixing_are_of_the_true_labels_alone():
    mixed = torch.tensor([[0.6, 0.4, 0], [0, 0.3, 0.7], [0, 1, 0], [0.5, 0, 0.5]])
    plain = {"label_smoothing": 0.2, "weights": torch.tensor([1.0, 2.0, 0.5])}
    expected = 0.5 * Task(**plain).loss(LOGITS, mixed) + 0.5 * F.cross_entropy(TOKEN, TEACHER.argmax(dim=1))
    torch.testing.assert_close(Task(**plain).loss((LOGITS, TOKEN), mixed, TEACHER), expected)


def test_the_weight_shares_the_loss_out():
    for weight in (0.0, 0.25, 1.0):
        task = Task(distillation=DistillationSettings(weight=weight))
        expected = (1 - weight) * Task().loss(LOGITS, LABELS) + weight * F.cross_entropy(TOKEN, TEACHER.argmax(dim=1))
        torch.testing.assert_close(task.loss((LOGITS, TOKEN), LABELS, TEACHER), expected)


def test_two_heads_answer_with_their_mean():
    one, other = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 3.0], [1.0, 0.0]])
    assert Task().right((one, other), torch.tensor([0, 0])) == 0
    assert Task().right((one, other), torch.tensor([1, 1])) == 2
