"""Labels are judged as confident learning defines it, by heads that have not seen them."""

import pytest
import torch
from torch.testing import assert_close

from vitrail.data.items import Item
from vitrail.errors import DataError
from vitrail.tasks.classification.study.label_issues import (
    confident_class,
    folds,
    judge,
    judgeable,
    judged,
    out_of_fold,
    thresholds,
)

PROBABILITIES = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2], [0.2, 0.8, 0.0], [0.75, 0.15, 0.1], [0.1, 0.3, 0.6]])
LABELS = torch.tensor([0, 0, 1, 1, 2])


def test_thresholds_and_counted_classes_by_hand():
    usual = thresholds(PROBABILITIES, LABELS)
    assert_close(usual, torch.tensor([(0.9 + 0.5) / 2, (0.8 + 0.15) / 2, 0.6]))
    assert confident_class(PROBABILITIES, usual).tolist() == [0, -1, 1, 0, 2]  # the second has enough for none


def test_the_wrong_ones_are_off_the_diagonal_of_the_confident_joint_and_come_first():
    answer = judge(PROBABILITIES, LABELS)
    assert answer.wrong.tolist() == [False, False, False, True, False] and answer.ranked[0] == 3
    assert answer.suggestion.tolist() == [1, 1, 0, 0, 1]
    assert_close(answer.confidence, 1 - torch.tensor([0.9, 0.5, 0.8, 0.15, 0.6]))


@pytest.fixture(scope="module")
def clouds():
    """Features of three classes of 40 images, and labels of which three are wrong."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(120) % 3
    features = torch.randn(120, 6, generator=generator) * 0.3 + 3 * torch.eye(6)[truth]
    labels = truth.clone()
    labels[[5, 50, 100]] = (truth[[5, 50, 100]] + 1) % 3
    return features, labels, truth


def test_planted_labels_come_first_with_their_own_as_suggestion(clouds):
    features, labels, truth = clouds
    answer = judged(features, labels, classes=3)
    assert set(answer.ranked[:3]) == {5, 50, 100}
    assert set(answer.wrong.nonzero().flatten().tolist()) == {5, 50, 100}
    assert_close(answer.suggestion[[5, 50, 100]], truth[[5, 50, 100]])


def test_no_image_is_answered_by_a_head_that_has_seen_it(clouds):
    """Its own label decides nothing of its answer but the ridge, which the others decide as well."""
    features, labels, _ = clouds
    changed = labels.clone()
    changed[7] = (labels[7] + 1) % 3
    same = folds(labels, 0) == folds(labels, 0)[7]
    one, other = (out_of_fold(features, given, classes=3, seed=0)[7] for given in (labels, changed))
    assert same.sum() == 24 and one.argmax() == other.argmax() == labels[7] and (one - other).abs().max() < 0.1


def test_what_cannot_be_judged_is_said():
    items = [Item(str(n), b"", n % 2) for n in range(12)] + [Item("odd", b"", 2)]
    assert judgeable(items, ["a", "b", "c"], multi_label=False, where="x") == list(range(12))
    with pytest.raises(DataError, match="needs two classes of 5 images"):
        judgeable(items[:6], ["a", "b"], multi_label=False, where="x")
    with pytest.raises(DataError, match="one label per image"):
        judgeable([Item("a", b"", (0, 1))], ["a", "b"], multi_label=True, where="x")
