"""What training minimises, and how an answer counts as right. The loop knows neither."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.training.settings import DistillationSettings

Answers = Tensor | tuple[Tensor, Tensor]
"""Logits (B, classes); of a model with a distillation token that has a teacher, the pair of both heads'."""


class Task:
    """The loss of a batch, averaged over its images.

    Args:
        multi_label: whether an image has any number of labels; then each class is a question of its own.
        label_smoothing: share of the target that is spread over all answers.
        weights: a factor for every class; None for none. See `class_weights`.
        distillation: how a teacher's answers count, where there is one.
    """

    def __init__(
        self,
        *,
        multi_label: bool = False,
        label_smoothing: float = 0.0,
        weights: Tensor | None = None,
        distillation: DistillationSettings | None = None,
    ):
        self.multi_label, self.label_smoothing, self.weights = multi_label, label_smoothing, weights
        self.distillation = distillation or DistillationSettings()

    def loss(self, answers: Answers, targets: Tensor, teacher: Tensor | None = None) -> Tensor:
        """Answers against class indices (B,) or the share of each class (B, classes): a scalar.

        Cross-entropy; with several labels binary cross-entropy, averaged over the classes, where a class's weight
        multiplies what its positive images cost.

        With a teacher's logits (B, classes) it is ``(1 - λ) · this + λ · what differs from the teacher``, equations (2) and
        (3) of Touvron et al. 2021, λ being the weight. The second term is on the distillation token's logits, if there are any.
        """
        logits, distilled = answers if isinstance(answers, tuple) else (answers, answers)
        true = self._true_loss(logits.float(), targets)
        if teacher is None:
            return true
        weight = self.distillation.weight
        return (1 - weight) * true + weight * self._teachers_loss(distilled.float(), teacher.float())

    def right(self, answers: Answers, targets: Tensor) -> int:
        """Images whose surest class is a true one; of a mixed image, the larger share."""
        logits = answers[0] + answers[1] if isinstance(answers, tuple) else answers
        best = logits.argmax(dim=1)
        if self.multi_label:
            return int((targets.gather(1, best[:, None]) >= 0.5).sum())
        return int((best == (targets if targets.ndim == 1 else targets.argmax(dim=1))).sum())

    def _true_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.multi_label:
            smooth = targets * (1 - self.label_smoothing) + self.label_smoothing / 2
            return F.binary_cross_entropy_with_logits(logits, smooth, pos_weight=self._weights(logits))
        if self.weights is None:
            return F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)
        weights = self._weights(logits)
        total = F.cross_entropy(logits, targets, weight=weights, label_smoothing=self.label_smoothing, reduction="sum")
        return total / len(logits)  # torch's own mean would divide by the weights of this batch

    def _teachers_loss(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Cross-entropy with the teacher's surest class, or ``τ² KL(teacher / τ, student / τ)``, averaged over the images."""
        if self.distillation.kind == "hard":
            return F.cross_entropy(logits, teacher.argmax(dim=1))
        t = self.distillation.temperature
        student, teacher = (logits / t).log_softmax(dim=1), (teacher / t).log_softmax(dim=1)
        return t**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)

    def _weights(self, logits: Tensor) -> Tensor | None:
        return None if self.weights is None else self.weights.to(logits.device, logits.dtype)


def class_weights(counts: Sequence[int], images: int, *, multi_label: bool = False) -> Tensor:
    """What makes every class weigh the same: ``images / (classes · count)``, 1 on average over the images.

    With several labels it is negative images per positive one, so that each class's positives weigh as much as its
    negatives.
    """
    count = torch.tensor(counts, dtype=torch.float64).clamp(min=1)
    weights = (images - count).clamp(min=1) / count if multi_label else images / (len(counts) * count)
    return weights.float()
