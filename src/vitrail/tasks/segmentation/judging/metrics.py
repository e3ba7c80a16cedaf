"""Metrics of masks: IoU, accuracy and boundary IoU from counts of pixels, summed over the data set."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from vitrail.data.loading.batches import Batch
from vitrail.runtime.processes import Processes
from vitrail.tasks.task import Answers, Metrics

BOUNDARY = 0.02
"""Width of a boundary as a fraction of the image's diagonal (Cheng et al. 2021, https://arxiv.org/abs/2103.16562)."""


def confusion_matrix(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Return the number of pixels by true class (rows) and predicted class (columns), int64 (K, K), without void (index ≥ K)."""
    known = truth < classes
    pairs = classes * truth[known].astype(np.int64) + predicted[known]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def iou(counts: np.ndarray) -> np.ndarray:
    """Return intersection over union of each class from a confusion matrix; NaN for a class without any pixel."""
    both = np.diag(counts)
    return _ratio(both, counts.sum(axis=0) + counts.sum(axis=1) - both)


def accuracy(counts: np.ndarray) -> np.ndarray:
    """Return the fraction of each true class's pixels that are predicted right; NaN for a class that is nowhere true."""
    return _ratio(np.diag(counts), counts.sum(axis=1))


def boundary(mask: np.ndarray) -> np.ndarray:
    """Return which pixels of a mask (H, W) are at most `BOUNDARY` away from another class or from the image's border.

    The distance is the larger of rows and columns, as repeated erosion by 3×3 pixels measures it.
    """
    from scipy.ndimage import maximum_filter1d, minimum_filter1d

    side = 2 * max(1, round(BOUNDARY * math.hypot(*mask.shape))) + 1
    low = high = mask.astype(np.int32)
    for axis in (0, 1):
        low = minimum_filter1d(low, side, axis, mode="constant", cval=-1)  # outside of the image is another class
        high = maximum_filter1d(high, side, axis, mode="constant", cval=-1)
    different: np.ndarray = low != high
    return different


def boundary_counts(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Return intersection and union in pixels of each class's boundary regions, int64 (2, K).

    Void pixels of the truth are void in the prediction, too, so a border with void is the same in both.
    """
    void = truth >= classes
    edges = [np.where(boundary(np.where(void, classes, mask)) & ~void, mask, classes) for mask in (truth, predicted)]
    own, other = (edge.ravel().astype(np.int64) for edge in edges)
    both = np.bincount(own[own == other], minlength=classes + 1)
    total = np.bincount(own, minlength=classes + 1) + np.bincount(other, minlength=classes + 1)
    return np.stack([both, total - both])[:, :classes]


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def mean(values: np.ndarray) -> float:
    """Return the mean without NaN; 0 if there is nothing else."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


class ImageCounts(NamedTuple):
    """Pixels of one image by class, int64 (K,) each, without void."""

    number: int
    """Index of the item."""
    right: np.ndarray
    true: np.ndarray
    predicted: np.ndarray

    @property
    def iou(self) -> float:
        """Mean IoU of the classes in this image, true or predicted."""
        return mean(_ratio(self.right, self.true + self.predicted - self.right))


class SegmentationMetrics(Metrics):
    """Metrics of masks at the images' own size; with ``keep`` also boundary IoU, and the counts of each image.

    Args:
        classes: names of the classes.
        keep: computes everything.
    """

    def __init__(self, classes: Sequence[str], *, keep: bool = False):
        count = len(classes)
        self.classes, self.keep = list(classes), keep
        self.confusion = np.zeros((count, count), np.int64)
        """Pixels by true class (rows) and predicted class (columns)."""
        self.boundaries = np.zeros((2, count), np.int64)
        """Intersection and union of the boundary regions of each class, in pixels."""
        self.images, self._loss, self._pixels = 0, 0.0, 0.0
        self.rows: list[ImageCounts] = []

    def update(self, answers: Answers, batch: Batch) -> None:
        """Add a batch; see `vitrail.tasks.segmentation.task.Segmentation.answer`."""
        self.images += len(batch["masks"])
        self._loss += float(answers["loss"].sum())
        self._pixels += float(answers["pixels"].sum())
        masks = (each["masks"].cpu().numpy() for each in (batch, answers))
        for number, truth, predicted in zip(batch["number"].tolist(), *masks, strict=True):
            self._add(truth, predicted, number)

    def _add(self, truth: np.ndarray, predicted: np.ndarray, number: int) -> None:
        counts = confusion_matrix(truth, predicted, len(self.classes))
        self.confusion += counts
        if self.keep:
            self.boundaries += boundary_counts(truth, predicted, len(self.classes))
            self.rows.append(ImageCounts(number, np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)))

    def reduce(self, group: Processes) -> None:
        self.confusion, self.boundaries = (
            group.all_reduce(torch.from_numpy(counts)).numpy() for counts in (self.confusion, self.boundaries)
        )
        sums = group.all_reduce(torch.tensor([self._loss, self._pixels, self.images], dtype=torch.float64)).tolist()
        self._loss, self._pixels, self.images = sums[0], sums[1], int(sums[2])
        self.rows = sorted(group.gathered(self.rows), key=lambda row: row.number)

    def scores(self) -> dict[str, float | int]:
        counts = self.confusion
        scores = {
            "miou": mean(iou(counts)),
            "pixel_accuracy": float(np.trace(counts) / max(1, counts.sum())),
            "mean_accuracy": mean(accuracy(counts)),
        }
        if self.keep:
            scores["boundary_iou"] = mean(_ratio(*self.boundaries))
        return {**scores, "loss": self._loss / max(1.0, self._pixels), "images": self.images}

    def details(self) -> dict[str, Any]:
        """Return `scores`, ``classes`` with the scores of each, None for undefined ones, and the ``confusion`` matrix."""
        return {
            **self.scores(),
            "classes": {
                name: {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
                for name, row in zip(self.classes, self.of_classes(), strict=True)
            },
            "confusion": self.confusion.tolist(),
        }

    def of_classes(self) -> list[dict[str, float | int]]:
        """Return the scores of each class: ``iou``, ``accuracy``, ``boundary_iou``, ``true`` and ``predicted`` pixels."""
        columns = {
            "iou": iou(self.confusion).tolist(),
            "accuracy": accuracy(self.confusion).tolist(),
            **({"boundary_iou": _ratio(*self.boundaries).tolist()} if self.keep else {}),
            "true": self.confusion.sum(axis=1).tolist(),
            "predicted": self.confusion.sum(axis=0).tolist(),
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        def shown(value: float | None) -> str:
            return f"{'–':>9}" if value is None else f"{100 * value:>7.2f} %"

        width = max((len(name) for name in self.classes), default=0)
        head = f"{'class':<{width}} {'IoU':>9} {'accuracy':>9} {'pixels':>13}"
        rows = details["classes"].items()
        return [head, *(f"{name:<{width}} {shown(row['iou'])} {shown(row['accuracy'])} {row['true']:>13,}" for name, row in rows)]

    def remarks(self, details: Mapping[str, Any]) -> list[str]:
        absent = [name for name, row in details["classes"].items() if row["iou"] is None]
        return [f"left out of means, as neither true nor predicted anywhere: {', '.join(absent)}"] if absent else []
