"""Multi-label classification: an image may show any number of classes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.loading.batches import Batch
from vitrail.tasks.classification.labels.single_label import Classification, LabelMetrics, surest
from vitrail.tasks.floor import Floor
from vitrail.tasks.task import Answers, Metrics

PRIOR = 5
"""Weight of the threshold 0.5, in images. On simulated labels of 34 to 400 images, 2 to 10 gave the best F1 within 0.01, and from
5 on hardly any label was predicted for three times too many images."""
FEW, NAMED = 10, 8
"""Number of images below which there is a warning about a threshold, and number of classes that the warning names."""


class MultiLabel(Classification):
    """Binary cross-entropy for each class separately, averaged over the classes.

    The weight of a class multiplies the loss of its positive images.
    """

    counts: ClassVar[tuple[str, ...]] = ()
    multi_label = True
    settling_changes_scores = True
    report_seconds: ClassVar[float] = 7.0

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self.loss(self.network(self.images(batch)).float(), batch["labels"])}

    def loss(self, logits: Tensor, labels: Tensor, *, smoothing: float | None = None) -> Tensor:
        """Return the scalar loss of logits against labels 0 and 1, or fractions of mixed images, (B, classes) each."""
        smoothing = self.label_smoothing if smoothing is None else smoothing
        weight = None
        if self.weights is not None:  # before smoothing, which gives every image a fraction of a rare class
            positive = labels * self.weights.to(logits.device, logits.dtype)
            weight = positive + (1 - labels)
            labels = positive / weight
        return F.binary_cross_entropy_with_logits(logits, labels * (1 - smoothing) + smoothing / 2, weight=weight)

    def metrics(self, *, keep: bool = False) -> "MultiLabelMetrics":
        return MultiLabelMetrics(self.thresholds)

    def floor(self, metrics: Metrics, items: Sequence[Any], known: Sequence[Any]) -> Floor | None:
        """Return the scores of the same probabilities for all ``items``, averaged over all rankings of them."""
        assert isinstance(metrics, MultiLabelMetrics)
        labels = metrics.labels.double()
        shares = labels.mean(dim=0)
        count, shown = len(labels), labels.sum(dim=0)[shares > 0]
        if not len(shown) or count < 2 or bool((shown == count).all()):
            return None
        harmonic = sum(1 / place for place in range(1, count + 1))
        by_chance = (harmonic + (shown - 1) / (count - 1) * (count - harmonic)) / count  # the mean over all orders
        entropy = -(torch.special.xlogy(shares, shares) + torch.special.xlogy(1 - shares, 1 - shares)).mean().item()
        return Floor("the same probabilities for all", {"map": by_chance.mean().item(), "loss": entropy})

    def settle(self, validation: Metrics) -> str:
        assert isinstance(validation, MultiLabelMetrics)
        true = validation.labels.numpy() > 0
        self.thresholds = choose_thresholds(true, validation.probabilities.numpy()).tolist()
        return scanty_thresholds(true, self.classes)


class MultiLabelMetrics(LabelMetrics):
    """Accuracy, loss, average precision and F1 of ``logits`` against ``labels``, float32 (B, classes) of zeros and ones.

    Average precision ranks all images, so the logits and labels of all images are stored: 8 bytes per image and class.

    Args:
        thresholds: the probability from which on each class is predicted; by default 0.5 for all.
    """

    def __init__(self, thresholds: Sequence[float] = ()) -> None:
        super().__init__(keep=True)
        self.thresholds = thresholds

    def of_each(self, answers: Answers, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return for each image whether its best class is true, whether one of the five best is, and the loss: (B,) each.

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
        """F1 of predictions by the thresholds, averaged over the classes that any image shows; 0 if there are none."""
        bounds = torch.tensor(self.thresholds or 0.5)
        true, said = self.labels > 0, self.probabilities >= bounds
        shown = true.any(dim=0)
        agreed, both = (true & said).sum(dim=0)[shown], (true.sum(dim=0) + said.sum(dim=0))[shown]
        return (2 * agreed / both).mean().item() if shown.any() else 0.0

    @property
    def mean_average_precision(self) -> float:
        """Average precision, averaged over the classes that any image shows; 0 if there are none, NaN if a logit is NaN."""
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
        """Probabilities (N, classes): the sigmoid of each logit."""
        return self._of_logits(torch.sigmoid)

    @property
    def certainty(self) -> float:
        """The mean probability of the true classes; 0 if there are none."""
        true = self.labels > 0
        return (self.probabilities[true].mean() if true.any() else torch.zeros(())).item()


def label_metrics(*, multi_label: bool, keep: bool = False, thresholds: Sequence[float] = ()) -> LabelMetrics:
    return MultiLabelMetrics(thresholds) if multi_label else LabelMetrics(keep=keep)


def choose_thresholds(true: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return `best_thresholds` (classes,), shrunk towards 0.5 in log-odds if they are based on few images.

    The weight of the best threshold is n / (n + `PRIOR`); n is the number of images with the class, or without it if these are
    fewer. With three images, one odd image often determines the best threshold: 3 % becomes 21 %.
    """
    best = np.clip(best_thresholds(true, probabilities), 1e-6, 1 - 1e-6)
    count = resting_on(true)
    odds = np.log(best / (1 - best)) * count / (count + PRIOR)
    return np.asarray(1 / (1 + np.exp(-odds)))


def resting_on(true: np.ndarray) -> np.ndarray:
    """Return for each class the number of images with it, or without it if these are fewer: (classes,)."""
    shown = true.sum(axis=0)
    return np.asarray(np.minimum(shown, len(true) - shown))


def scanty_thresholds(true: np.ndarray, classes: Sequence[str]) -> str:
    """Return a sentence with the classes whose thresholds are based on few images; "" if there are none."""
    found = [f"{name} ({count})" for name, count in zip(classes, resting_on(true).tolist(), strict=True) if count < FEW]
    if not found:
        return ""
    named = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED:,} others" if len(found) > NAMED else "")
    return f"thresholds that rest on fewer than {FEW} validation images are drawn towards 50 % and unsure: {named}"


def best_thresholds(true: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the threshold of every class (classes,) with the best F1 on these images; both arguments are (N, classes).

    It is halfway to the next lower probability, so that rounding changes no prediction. It is 0.5 for a class without images.
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
