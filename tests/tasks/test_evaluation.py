"""Scores against sklearn's and calculations by hand, for one label per image and for several."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import average_precision_score, log_loss, top_k_accuracy_score
from torch import nn

from vitrail.data.items import Item
from vitrail.data.loader import EpochLoader, ImageDataset
from vitrail.data.preparation import Preparation
from vitrail.tasks.evaluation import Evaluation, answering, evaluate_batches

LOGITS = torch.tensor([[3.0, 1.0, -2.0], [0.0, 2.0, 1.0], [-1.0, -3.0, 0.5], [1.0, 2.0, 3.0]])
LABELS = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]])


def random_evaluation(seed: int, *, multi_label: bool, images: int = 40, classes: int = 7) -> Evaluation:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, classes, generator=random) * 3
    if multi_label:
        return Evaluation(logits, (torch.rand(images, classes, generator=random) < 0.3).float())
    return Evaluation(logits, torch.randint(classes, (images,), generator=random))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 9))
def test_single_label_scores_are_those_of_scikit_learn(seed, k):
    made = random_evaluation(seed, multi_label=False)
    labels, classes = made.labels.numpy(), range(7)
    assert made.loss == pytest.approx(log_loss(labels, softmax(made.logits.double().numpy(), axis=1), labels=classes))
    expected = 1.0 if k >= 7 else top_k_accuracy_score(labels, made.logits.numpy(), k=k, labels=classes)
    assert made.top(k) == pytest.approx(expected)
    assert made.probabilities.sum(dim=1).tolist() == pytest.approx([1.0] * 40)


def test_single_label_scores_know_no_average_precision():
    made = random_evaluation(0, multi_label=False)
    assert not made.multi_label
    assert made.scores() == {"top1": made.top(1), "top5": made.top(5), "loss": made.loss, "images": 40}


def test_several_labels_have_a_probability_each():
    made = Evaluation(LOGITS, LABELS)
    assert made.multi_label
    np.testing.assert_allclose(made.probabilities.numpy(), 1 / (1 + np.exp(-LOGITS.numpy())), rtol=1e-6)


def test_the_loss_of_several_labels_is_the_mean_over_images_and_classes():
    terms = [
        math.log(1 + math.exp(-logit if label else logit))
        for row, labels in zip(LOGITS.tolist(), LABELS.tolist(), strict=True)
        for logit, label in zip(row, labels, strict=True)
    ]
    assert Evaluation(LOGITS, LABELS).loss == pytest.approx(sum(terms) / 12)


def test_one_of_several_labels_among_the_best_guesses_is_a_hit_and_an_image_without_labels_is_none():
    made = Evaluation(LOGITS, LABELS)  # best first: 0 1 2, 1 2 0, 2 0 1, 2 1 0
    assert [made.top(k) for k in (1, 2, 3, 9)] == [2 / 4, 2 / 4, 3 / 4, 3 / 4]


def test_average_precision_by_hand():
    # class 0, from the highest probability: 1 0 1 0, so precision at the hits is 1/1 and 2/3
    # class 1 is shown by no image and left out
    # class 2: 1 0 0 1, so 1/1 and 2/4
    assert Evaluation(LOGITS, LABELS).mean_average_precision == pytest.approx((5 / 6 + 3 / 4) / 2)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_average_precision_is_the_mean_over_the_classes_that_are_shown(seed):
    made = random_evaluation(seed, multi_label=True)
    made.labels[:, 2] = 0
    each = [average_precision_score(made.labels[:, i].numpy(), made.logits[:, i].numpy()) for i in range(7) if i != 2]
    assert made.mean_average_precision == pytest.approx(float(np.mean(each)))
    assert made.scores()["map"] == made.mean_average_precision


def test_average_precision_without_any_label_is_a_number_json_can_hold():
    assert Evaluation(LOGITS, torch.zeros(4, 3)).scores() == {
        "top1": 0.0, "top5": 0.0, "loss": pytest.approx(Evaluation(LOGITS, torch.zeros(4, 3)).loss), "images": 4, "map": 0.0,
    }  # fmt: skip


def looked_at(model, *, several: bool, part=(0, 1), sizes=None, images=5):
    """An evaluation of grey images 0, 1, 2, … of the class of that number, in batches of two."""
    items = [Item(f"{i}", np.full((2, 2), i, np.uint8), (i,) if several else i) for i in range(images)]
    preparation = Preparation.standard((2, 2), 1)
    dataset = ImageDataset(items, preparation, classes=5, multi_label=several)
    loader = EpochLoader(dataset, 2, shuffle=False, part=part)
    with answering(model, preparation, torch.device("cpu")) as logits:
        return evaluate_batches(logits, loader, on_batch=sizes.append if sizes == [] else None)


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
def test_batches_of_either_kind_come_out_in_their_order_and_the_model_goes_on_as_it_was(several):
    model, sizes = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Dropout(0.9)).train(), []
    result = looked_at(model, several=several, sizes=sizes)
    pixels = torch.arange(5, dtype=torch.float32).view(5, 1).expand(5, 4)
    torch.testing.assert_close(result.logits, model[1]((pixels / 255 - 0.5) / 0.5))
    assert torch.equal(result.labels, torch.eye(5) if several else torch.arange(5))
    assert result.multi_label == several
    assert (sizes, model.training) == ([2, 2, 1], True)


def test_a_model_that_was_in_evaluation_stays_there():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5)).eval()
    looked_at(model, several=False)
    assert not model.training


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
@pytest.mark.parametrize("parts", [2, 3])
def test_the_parts_of_several_processes_add_up_to_the_whole(several, parts):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5))
    whole = looked_at(model, several=several)
    each = [looked_at(model, several=several, part=(i, parts)) for i in range(parts)]
    torch.testing.assert_close(sum(part.logits for part in each), whole.logits)
    assert torch.equal(sum(part.labels for part in each), whole.labels)
