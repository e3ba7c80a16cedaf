"""Classification with one class per image."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData
from vitrail.data.loading.batches import Batch
from vitrail.data.targets import Targets, class_targets
from vitrail.models.base import ImageModel
from vitrail.runtime.processes import Processes
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.metrics import main_metric
from vitrail.tasks.task import Answers, Means, Metrics, Options
from vitrail.weights.model_folder.folder import TrainedModel

ACCEPTED = 0.95
"""Fraction of the validation images that a rejecting model accepts."""


class Classification(ImageTask):
    """Cross-entropy with the class of an image; for mixed images with the fraction of each class.

    Args:
        model: a model with logits (B, classes).
        preparation: the preparation that normalizes the pixels.
        classes: the names of the classes, by index.
        label_smoothing: the fraction of the target that is spread over all classes.
        weights: a factor on the loss of each class, see `class_weights`; None for none.
    """

    name = "classification"
    counts: ClassVar[tuple[str, ...]] = ("top1",)
    multi_label = False
    report_needs_validation = True
    thresholds: Sequence[float] = ()
    """The probability from which on each class is accepted; `settle` chooses it."""

    def __init__(
        self,
        model: ImageModel,
        preparation: Preparation,
        classes: Sequence[str],
        *,
        label_smoothing: float = 0.0,
        weights: Tensor | None = None,
    ):
        super().__init__(model, preparation)
        self.classes, self.label_smoothing = list(classes), label_smoothing
        self.weights = weights

    @classmethod
    def create(cls, model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Self:
        return cls(model, preparation, data.classes, **cls.arguments(data, options))

    @classmethod
    def arguments(cls, data: ImageData, options: Options) -> dict[str, Any]:
        weights = None
        if options.balance == "loss":
            weights = class_weights(data.counts("train"), len(data.split("train")), multi_label=cls.multi_label)
        return {"label_smoothing": options.label_smoothing, "weights": weights}

    def targets(self, *, mixed: bool = False) -> Targets:
        return class_targets(len(self.classes), shares=mixed or self.multi_label)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        logits, labels = self.network(self.images(batch)), batch["labels"]
        return {"loss": self.loss(logits.float(), labels), "top1": self.hits(logits, labels)}

    def loss(self, logits: Tensor, labels: Tensor, *, smoothing: float | None = None) -> Tensor:
        """Return the scalar loss of logits (B, classes) against class indices (B,) or fractions of classes (B, classes).

        ``smoothing`` replaces the task's label smoothing if it is not None.
        """
        smoothing = self.label_smoothing if smoothing is None else smoothing
        if self.weights is None:
            return F.cross_entropy(logits, labels, label_smoothing=smoothing)
        weights = self.weights.to(logits.device, logits.dtype)
        if labels.ndim == 1:
            weight = weights[labels]
        else:
            weighed = labels * weights
            weight = weighed.sum(dim=1)
            labels = weighed / weight[:, None]
        # Torch would apply its weights to the smoothed labels, where a rare class could outweigh the true one; and its mean would
        # divide by the weights of this batch.
        return (weight * F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")).mean()

    def hits(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Count the images whose best class is correct; for a mixed image, the class of the larger fraction is correct."""
        return (logits.argmax(dim=1) == (labels if labels.ndim == 1 else labels.argmax(dim=1))).sum()

    def answer(self, batch: Batch) -> Answers:
        return {"logits": self.model(self.images(batch)).float()}

    def metrics(self, *, keep: bool = False) -> "LabelMetrics":
        return LabelMetrics(keep=keep)

    def settle(self, validation: Metrics) -> str:
        """Choose the probability below which ``--reject`` rejects an image; see `rejection_threshold`."""
        assert isinstance(validation, LabelMetrics)
        self.thresholds = [rejection_threshold(validation.probabilities)] * len(self.classes)
        return ""

    def floor(self, metrics: Metrics, items: Sequence[Any], known: Sequence[Any]) -> Floor | None:
        """Return the scores of predicting the most frequent class for all ``items``; None if there is only one class."""
        assert isinstance(metrics, LabelMetrics)
        shares = torch.bincount(metrics.labels, minlength=len(self.classes)).double() / max(1, len(metrics.labels))
        most = int(shares.argmax())
        if shares[most] in (0, 1):
            return None
        entropy = -torch.special.xlogy(shares, shares).sum().item()
        return Floor(f"“{self.classes[most]}” for all", {"top1": shares[most].item(), "loss": entropy})

    def trained(self, model: ImageModel) -> TrainedModel:
        return TrainedModel(model, self.classes, self.preparation, self.multi_label, thresholds=self.thresholds)


def rejection_threshold(probabilities: Tensor) -> float:
    """Return the largest threshold that the highest probability of a fraction `ACCEPTED` of the images reaches.

    ``probabilities`` are (N, classes).
    """
    sureness = probabilities.amax(dim=1).sort(descending=True).values
    return sureness[math.ceil(ACCEPTED * len(sureness)) - 1].item()


class LabelMetrics(Means):
    """Accuracy and loss of ``logits`` (B, classes) against ``labels``, int64 (B,).

    Args:
        keep: whether to store the logits of every image, for reports and comparisons.
    """

    def __init__(self, *, keep: bool = False):
        super().__init__(self.of_each)
        self.kept: list[tuple[Tensor, Tensor]] | None = [] if keep else None

    def update(self, answers: Answers, batch: Mapping[str, Tensor]) -> None:
        logits, labels = answers["logits"].cpu(), batch["labels"].cpu()
        super().update({"logits": logits}, {**batch, "labels": labels})
        if self.kept is not None:
            self.kept.append((logits, labels))

    def reduce(self, group: Processes) -> None:
        super().reduce(group)
        if self.kept is not None:
            self.kept = group.in_batches(self.kept)

    def of_each(self, answers: Answers, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return for each image whether the true class is the best, whether it is in the best five, and the loss: (B,) each."""
        logits, labels = answers["logits"], batch["labels"]
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        return {**surest(best, logits.shape[1]), "loss": F.cross_entropy(logits, labels, reduction="none")}

    @property
    def score(self) -> float:
        """The value of the main metric."""
        scores = self.scores()
        return scores[main_metric(scores).name]

    @property
    def logits(self) -> Tensor:
        """Logits (N, classes), in the order of the images; only with ``keep``."""
        return torch.cat([logits for logits, _ in self.kept or ()])

    @property
    def labels(self) -> Tensor:
        """Labels of the images, in their order; only with ``keep``."""
        return torch.cat([labels for _, labels in self.kept or ()])

    @property
    def probabilities(self) -> Tensor:
        """Probabilities (N, classes), the softmax of the stored logits; only with ``keep``."""
        return self._of_logits(partial(torch.softmax, dim=1))

    @torch.no_grad()
    def _of_logits(self, function: Callable[..., Tensor]) -> Tensor:
        """Apply a function to the logits batch by batch: another copy of 12,000 images × 12,000 classes would be 576 MB."""
        batches = [logits for logits, _ in self.kept or ()]
        made = torch.empty(sum(map(len, batches)), batches[0].shape[1], dtype=batches[0].dtype)
        for logits, place in zip(batches, made.split([*map(len, batches)]), strict=True):
            function(logits, out=place)
        return made

    @property
    def certainty(self) -> float:
        """The mean probability of the true classes; only with ``keep``."""
        return self.probabilities.gather(1, self.labels[:, None]).mean().item()


def surest(true: Tensor, classes: int) -> dict[str, Tensor]:
    """Return ``top1`` and ``top5`` of each image, (B,), from whether each of its best five classes is true, bool (B, up to 5).

    With five classes or fewer, ``top5`` would always be true, and is left out.
    """
    return {"top1": true[:, 0], **({"top5": true.any(dim=1)} if classes > 5 else {})}


def class_weights(counts: Sequence[int], images: int, *, multi_label: bool = False) -> Tensor:
    """Return loss weights for equally important classes: ``images / (classes · count)``, with mean 1 over the images.

    With several labels per image, the weight of a class is the number of negative images per positive one, so that its positive
    images weigh as much as its negative ones.
    """
    count = torch.tensor(counts, dtype=torch.float64).clamp(min=1)
    weights = (images - count).clamp(min=1) / count if multi_label else images / (len(counts) * count)
    return weights.float()
