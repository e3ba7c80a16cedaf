"""Metrics of masks, against definitions written out pixel by pixel."""

import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix as peer_confusion
from sklearn.metrics import jaccard_score

from vitrail.runtime.processes import Processes
from vitrail.tasks.metrics import main_metric
from vitrail.tasks.segmentation.judging.metrics import (
    SegmentationMetrics,
    accuracy,
    boundary,
    boundary_counts,
    confusion_matrix,
    iou,
)

VOID = 255
NAMES = ["sky", "road", "tree", "car", "never"]


def some_masks(seed=0, count=3, height=40, width=56, void=0.1, classes=4):
    random = np.random.default_rng(seed)
    truth = np.kron(random.integers(0, classes, (count, height // 8, width // 8)), np.ones((8, 8), np.int64))
    predicted = np.where(random.random(truth.shape) < 0.3, random.integers(0, classes, truth.shape), truth)
    return np.where(random.random(truth.shape) < void, VOID, truth), predicted


def measured(truth, predicted, *, keep=True, batch=2):
    metrics = SegmentationMetrics(NAMES, keep=keep)
    for at in range(0, len(truth), batch):
        own, masks = (torch.from_numpy(each[at : at + batch]) for each in (truth, predicted))
        sums = {"loss": torch.full((len(own),), 2.0), "pixels": torch.full((len(own),), 4.0)}
        metrics.update({"masks": masks, **sums}, {"masks": own, "number": torch.arange(at, at + len(own))})
    return metrics


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_an_independent_implementation_exactly_with_void(seed):
    truth, predicted = some_masks(seed)
    known = truth != VOID
    metrics = measured(truth, predicted)
    peer = peer_confusion(truth[known], predicted[known], labels=range(5))
    assert (metrics.confusion == peer).all() and metrics.confusion.dtype == np.int64
    per_class = jaccard_score(truth[known], predicted[known], labels=range(4), average=None)
    assert iou(metrics.confusion)[:4].tolist() == per_class.tolist() and math.isnan(iou(metrics.confusion)[4])
    scores = metrics.scores()
    assert scores["miou"] == per_class.mean()
    assert scores["pixel_accuracy"] == (truth == predicted)[known].mean()
    assert scores["mean_accuracy"] == np.mean([(predicted == c)[truth == c].mean() for c in range(4)])
    assert scores["loss"] == 0.5 and scores["images"] == 3
    assert main_metric(scores).name == "miou"


def test_a_class_that_is_only_predicted_counts_as_0_and_one_that_is_nowhere_does_not_count():
    counts = np.array([[4, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert iou(counts)[:2].tolist() == [4 / 5, 0] and math.isnan(iou(counts)[2])
    assert accuracy(counts)[0] == 4 / 5 and np.isnan(accuracy(counts)[1:]).all()


def test_without_a_known_pixel_all_scores_are_numbers():
    nothing = np.full((1, 8, 8), VOID)
    scores = measured(nothing, np.zeros((1, 8, 8), np.int64)).scores()
    assert {scores[name] for name in ("miou", "pixel_accuracy", "mean_accuracy", "boundary_iou")} == {0.0}


def eroded(mask, radius):
    """Erosion of a binary mask by a square, with nothing outside of the image."""
    padded = np.pad(mask, radius)
    result = np.ones_like(mask)
    height, width = mask.shape
    for down in range(2 * radius + 1):
        for across in range(2 * radius + 1):
            result &= padded[down : down + height, across : across + width]
    return result


@pytest.mark.parametrize("void", [0, 0.02])
def test_boundary_iou_is_that_of_each_class_by_erosion(void):
    (truth,), (predicted,) = some_masks(3, count=1, height=64, width=96, void=void)
    radius = round(0.02 * math.hypot(64, 96))
    assert radius == 2
    counts = boundary_counts(truth, predicted, 5)
    known = truth != VOID
    for number in range(5):
        one, other = truth == number, (predicted == number) & known
        edges = [each & ~eroded(each, radius) for each in (one, other)]
        assert counts[:, number].tolist() == [(edges[0] & edges[1]).sum(), (edges[0] | edges[1]).sum()]


def test_the_boundary_is_two_hundredths_of_the_diagonal_wide_and_one_pixel_at_least():
    mask = np.zeros((300, 400), np.uint8)
    mask[:, 200:] = 7
    inner = boundary(mask)[50]
    assert inner.sum() == 4 * 10 and inner[190:210].all() and inner[:10].all() and not inner[10:190].any()
    assert boundary(np.zeros((5, 5), np.uint8)).sum() == 16


def test_counts_are_summed_over_batches_and_processes_and_images_stay_in_order():
    class Two(Processes):
        """This process, and one that measured the same."""

        def all_reduce(self, values):
            return 2 * values

        def gathered(self, items):
            return [*items, *items]

    truth, predicted = some_masks()
    whole, alone = measured(truth, predicted, batch=3), measured(truth, predicted, batch=1)
    assert whole.details() == alone.details()
    single = whole.scores()
    whole.reduce(Two())
    assert (whole.confusion == 2 * alone.confusion).all()
    assert whole.scores() == {**single, "images": 6}
    assert [row.number for row in whole.rows] == [0, 0, 1, 1, 2, 2]


def test_details_are_json_and_say_what_is_left_out():
    metrics = measured(*some_masks())
    details = json.loads(json.dumps(metrics.details(), allow_nan=False))
    assert details["classes"]["never"] == {"iou": None, "accuracy": None, "boundary_iou": None, "true": 0, "predicted": 0}
    assert sum(row["true"] for row in details["classes"].values()) == np.sum(details["confusion"])
    assert "never" in metrics.remarks(details)[0] and "sky" not in metrics.remarks(details)[0]
    head, *lines = metrics.lines(details)
    assert len(lines) == 5 and {len(line) for line in lines} == {len(head)}


def test_the_iou_of_an_image_is_of_its_classes_alone():
    truth, predicted = some_masks(count=2)
    metrics = measured(truth, predicted)
    for row, own, theirs in zip(metrics.rows, truth, predicted, strict=True):
        counts = confusion_matrix(own, theirs, 5)
        assert row.iou == np.nanmean(iou(counts))


def test_per_epoch_there_is_no_boundary_iou_and_no_counts_of_images():
    metrics = measured(*some_masks(), keep=False)
    assert "boundary_iou" not in metrics.scores() and not metrics.rows
    assert "boundary_iou" not in metrics.details()["classes"]["sky"]
