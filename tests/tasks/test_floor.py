"""What one answer for all items scores, and when a model is no better."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.preparation import Preparation
from vitrail.tasks.classification.labels.multi_label import MultiLabel, MultiLabelMetrics
from vitrail.tasks.classification.labels.single_label import Classification, LabelMetrics
from vitrail.tasks.floor import is_no_better
from vitrail.tasks.pose.metrics import in_boxes, mean_pose
from vitrail.tasks.pose.people.people import Person, Pose


@pytest.mark.parametrize(
    ("scores", "floor", "no_better"),
    [
        ({"top1": 0.10, "loss": 2.0}, {"top1": 0.10, "loss": 2.3}, True),
        ({"top1": 0.12, "loss": 2.2}, {"top1": 0.10, "loss": 2.3}, False),  # little, but learned
        ({"top1": 0.12, "loss": 2.3}, {"top1": 0.10, "loss": 2.3}, True),  # more by chance
        ({"top1": 0.90, "loss": 2.9}, {"top1": 0.10, "loss": 2.3}, False),  # sure of its few mistakes
        ({"bleu": 0.08, "loss": 9.0}, {"bleu": 0.4}, True),
        ({"bleu": 1.0, "loss": 9.0}, {"bleu": 0.4}, False),
        ({"bleu": 0.0, "chrf": 78.0}, {"bleu": 0.0, "chrf": 20.0}, False),  # BLEU says nothing of texts of two words
        ({"bleu": 0.0, "chrf": 9.0}, {"bleu": 0.0, "chrf": 20.0}, True),
        ({"bleu": 0.0, "chrf": 0.0}, {"bleu": 0.0, "chrf": 0.0}, True),
        ({"loss": 1.1}, {"loss": 1.0}, True),
        ({"loss": 0.9}, {"loss": 1.0}, False),
    ],
)
def test_a_model_is_no_better_by_the_deciding_metric_or_nearly_so_with_a_loss_that_is_no_lower(scores, floor, no_better):
    assert is_no_better(scores, floor) == no_better


def test_the_floor_of_classes_is_the_most_frequent_one():
    made_task = Classification(torch.nn.Identity(), Preparation.standard((8, 8)), ["a", "b", "c"])
    metrics = LabelMetrics(keep=True)
    metrics.update({"logits": torch.zeros(4, 3)}, {"images": torch.zeros(4), "labels": torch.tensor([0, 2, 2, 2])})
    floor = made_task.floor(metrics, [], [])
    assert floor.name == "“c” for all" and floor.scores["top1"] == 0.75
    assert floor.scores["loss"] == pytest.approx(-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)))
    one = LabelMetrics(keep=True)
    one.update({"logits": torch.zeros(2, 3)}, {"images": torch.zeros(2), "labels": torch.tensor([1, 1])})
    assert made_task.floor(one, [], []) is None


def test_the_floor_of_several_labels_is_the_mean_over_all_orders():
    labels = torch.tensor([[1.0, 1], [1, 0], [0, 0], [0, 1], [0, 0]])
    metrics = MultiLabelMetrics()
    metrics.update({"logits": torch.zeros(5, 2)}, {"images": torch.zeros(5), "labels": labels})
    orders = [
        np.mean([average_precision_score(labels[:, i], order) for order in itertools.permutations(range(5))]) for i in (0, 1)
    ]
    assert MultiLabel.floor(None, metrics, [], []).scores["map"] == pytest.approx(np.mean(orders))


def test_the_mean_pose_is_in_shares_of_boxes():
    people = [
        Person("a", b"", Pose(Box(0, 0, 10, 20), ((5, 5, 2), (0, 0, 0)), 200.0, 1, 1)),
        Person("b", b"", Pose(Box(100, 100, 20, 20), ((105, 115, 1), (0, 0, 0)), 400.0, 2, 2)),
    ]
    pose = mean_pose(people)
    np.testing.assert_allclose(pose, [[0.375, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(in_boxes(pose, people)[1], [[107.5, 110], [110, 110]])
