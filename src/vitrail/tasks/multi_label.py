"""All the classes that an image shows, or none."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.batches import Batch
from vitrail.models.base import ImageModel
from vitrail.tasks.classification import Classification, LabelMetrics, surest
from vitrail.tasks.task import Answers, Metrics
from vitrail.weights.folder import TrainedModel


class MultiLabel(Classification):
    """Each class is a question of its own: binary cross-entropy, averaged over the classes.

    A class's weight multiplies what its positive images cost.
    """

    counts: ClassVar[tuple[str, ...]] = ()
    multi_label = True
    settling_changes_scores = True
    report_needs_validation = True
    thresholds: Sequence[float] = ()
    """The probability from which on each class is said; one half for all until `settle` has chosen them."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self.loss(self.network(self.images(batch)).float(), batch["labels"])}

    def loss(self, logits: Tensor, labels: Tensor, *, smoothing: float | None = None) -> Tensor:
        """Logits against zeros and ones, or shares of mixed images, (B, classes) each: a scalar."""
        smoothing = self.label_smoothing if smoothing is None else smoothing
        weight = None
        if self.weights is not None:  # before smoothing, which gives every image a share of a rare class
            positive = labels * self.weights.to(logits.device, logits.dtype)
            weight = positive + (1 - labels)
            labels = positive / weight
        return F.binary_cross_entropy_with_logits(logits, labels * (1 - smoothing) + smoothing / 2, weight=weight)

    def metrics(self, *, keep: bool = False) -> "MultiLabelMetrics":
        return MultiLabelMetrics(self.thresholds)

    def settle(self, validation: Metrics) -> None:
        assert isinstance(validation, MultiLabelMetrics)
        self.thresholds = best_thresholds(validation.labels.numpy() > 0, validation.probabilities.numpy()).tolist()

    def trained(self, model: ImageModel) -> TrainedModel:
        trained = super().trained(model)
        trained.thresholds = self.thresholds
        return trained


class MultiLabelMetrics(LabelMetrics):
    """Accuracy, loss, average precision and F1 of ``logits`` against ``labels``, float32 (B, classes) of zeros and ones.

    Average precision ranks all images, so it keeps the logits of every one: 8 bytes for each image and class.

    Args:
        thresholds: the probability from which on each class is said; one half for all if there are none.
    """

    def __init__(self, thresholds: Sequence[float] = ()) -> None:
        super().__init__(keep=True)
        self.thresholds = thresholds

    def of_each(self, answers: Answers, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whether the surest class is a true one, whether one of the five surest is, and the binary cross-entropy: (B,) each.

        An image without labels counts as wrong.
        """
        logits, labels = answers["logits"], batch["labels"]
        best = labels.gather(1, logits.topk(min(5, logits.shape[1]), dim=1).indices) > 0
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)
        return {**surest(best, logits.shape[1]), "loss": loss}

    def scores(self) -> dict[str, float | int]:
        return {**super().scores(), "map": self.mean_average_precision, "f1": self.mean_f1}

    @property
    def mean_f1(self) -> float:
        """F1 of saying what reaches its threshold, averaged over the classes that any image shows; 0 where none does."""
        bounds = torch.tensor(self.thresholds or 0.5)
        true, said = self.labels > 0, self.probabilities >= bounds
        shown = true.any(dim=0)
        agreed, both = (true & said).sum(dim=0)[shown], (true.sum(dim=0) + said.sum(dim=0))[shown]
        return (2 * agreed / both).mean().item() if shown.any() else 0.0

    @property
    def mean_average_precision(self) -> float:
        """Average precision, averaged over the classes that any image shows; 0 where none does, NaN of answers that are NaN."""
        from sklearn.metrics import average_precision_score  # takes a second, and most evaluations do without

        labels, probabilities = self.labels, self.probabilities
        shown = labels.any(dim=0)
        if not shown.any():
            return 0.0
        if probabilities.isnan().any():
            return math.nan
        return float(average_precision_score(labels[:, shown].numpy(), probabilities[:, shown].numpy()))

    @property
    def probabilities(self) -> Tensor:
        """(N, classes): a sigmoid, each class on its own."""
        return self._of_logits(torch.sigmoid)

    @property
    def certainty(self) -> float:
        """The mean probability of the true classes; 0 where no image shows any."""
        true = self.labels > 0
        return (self.probabilities[true].mean() if true.any() else torch.zeros(())).item()


def label_metrics(*, multi_label: bool, keep: bool = False, thresholds: Sequence[float] = ()) -> LabelMetrics:
    """The metrics of a model that answers with labels."""
    return MultiLabelMetrics(thresholds) if multi_label else LabelMetrics(keep=keep)


def best_thresholds(true: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The probability of every class (classes,) from which on saying it gives the best F1 on these images, (N, classes) each.

    It lies midway to the next lower probability, so that no rounding changes what is said. One half for a class that no image
    shows.
    """
    return np.array([_best_threshold(true[:, i], probabilities[:, i]) for i in range(true.shape[1])])


def _best_threshold(true: np.ndarray, probabilities: np.ndarray) -> float:
    from sklearn.metrics import precision_recall_curve  # takes a second, and most evaluations do without

    if not true.any():
        return 0.5
    precision, recall, thresholds = precision_recall_curve(true, probabilities)
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo(float).tiny)
    best = f1[:-1].argmax()  # the last point predicts nothing, and has no threshold
    return float(thresholds[best] + thresholds[max(best - 1, 0)]) / 2
