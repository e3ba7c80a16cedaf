"""Metrics of features that were learned without labels."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.loading.batches import Batch
from vitrail.data.loading.sampler import spread
from vitrail.runtime.processes import Processes
from vitrail.tasks.probe import linear_heads, neighbours
from vitrail.tasks.task import Answers, Metrics

MOST = 10_000
"""Largest number of images whose features are kept; they are spread evenly over all."""
PAIRED = 2_000
"""Number of images whose pairs measure the uniformity."""
PENALTY = 1e-2
"""Weight of the penalty of the linear probe."""
TOLD_APART = 0.01
"""Least information of the outputs on the image, as a fraction of what they could have, before a run counts as collapsed."""


def effective_rank(features: Tensor) -> float:
    """Return RankMe, ``exp(−Σ p log p)`` of the singular values over their sum (Garrido et al. 2022, 2210.02885), of (N, D)."""
    values = torch.linalg.svdvals(features.double())
    p = values / values.sum() + 1e-7
    return math.exp(-(p * p.log()).sum().item())


def uniformity(features: Tensor) -> float:
    """Return ``log E exp(−2 ‖x − y‖²)`` over pairs of features of length one (Wang and Isola 2020, 2005.10242), of (N, D)."""
    distances = torch.pdist(F.normalize(features.double(), dim=1))
    return torch.logsumexp(-2 * distances.square(), dim=0).item() - math.log(max(1, len(distances)))


def nearest_accuracy(features: Tensor, labels: Tensor, classes: int) -> float:
    """Return the fraction of images whose 20 nearest other images vote for their class.

    In section 4.1 of DINO's paper training images vote in the same way; so they do in `vitrail study`.
    """
    votes = neighbours(features, labels, features, classes=classes, among_others=True)
    return (votes.argmax(dim=1) == labels).double().mean().item()


def probe_accuracy(features: Tensor, labels: Tensor, classes: int) -> float:
    """Return the accuracy of linear heads on images that they were not fitted to: one half of each class, both ways."""
    right = 0
    for fitted in halves(labels):
        (head,) = linear_heads(features[fitted], labels[fitted], F.cross_entropy, classes=classes, penalties=(PENALTY,))
        right += int((head(features[~fitted]).argmax(dim=1) == labels[~fitted]).sum())
    return right / len(features)


def halves(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return two masks, bool (N,), that divide the images of each class at random, the same for the same labels."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    by_class = order[labels[order].argsort(stable=True)]
    first = torch.zeros(len(labels), dtype=torch.bool)
    first[by_class[::2]] = True
    return first, ~first


class FeatureMetrics(Metrics):
    """Metrics of features: nearest neighbours and a linear probe by ``classes``, their rank and uniformity, and the loss.

    Args:
        classes: number of classes of the labels; 0 without labels.
        keep: also fits the linear probe.
    """

    def __init__(self, classes: int, *, keep: bool = False):
        self.classes, self.keep = classes, keep
        self.images = 0
        self.loss: float | None = None
        """Sum over images; None where the model was evaluated without its teacher."""
        self.numbers, self.features, self.labels = (torch.empty(0, dtype=torch.long), torch.empty(0), torch.empty(0))
        self._wanted: set[int] | None = None
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._scores: dict[str, float | int] = {}
        """The scores, once they are computed, which takes seconds."""
        self._outputs, self._entropy = torch.zeros(1, dtype=torch.float64), 0.0
        """The sum of the outputs' probabilities (K,), and of their entropies, in nats."""

    def take_items(self, items: Sequence[Any]) -> None:
        self._wanted = set(spread(len(items), MOST)) if len(items) > MOST else None

    def update(self, answers: Answers, batch: Batch) -> None:
        numbers, features = batch["number"].cpu(), answers["features"].float().cpu()
        labels = batch["labels"].cpu() if self.classes else torch.zeros_like(numbers)
        kept = [row for row, number in enumerate(numbers.tolist()) if self._wanted is None or number in self._wanted]
        self._parts.append((numbers[kept], features[kept], labels[kept]))
        self.images += len(numbers)
        if "loss" in answers:
            self.loss = (self.loss or 0.0) + answers["loss"].double().sum().item()
        if "outputs" in answers:
            p = answers["outputs"].double().cpu()
            self._outputs = self._outputs + p.sum(dim=0)
            self._entropy += torch.special.entr(p).sum().item()

    def reduce(self, group: Processes) -> None:
        parts = group.gathered(self._parts)
        numbers, features, labels = (torch.cat(each) for each in zip(*parts, strict=True))
        order = numbers.argsort()
        self.numbers, self.features, self.labels = numbers[order], features[order], labels[order]
        self._outputs = group.all_reduce(self._outputs)
        sums = torch.tensor([self.loss or 0.0, self._entropy, self.images], dtype=torch.float64)
        loss, self._entropy, images = group.all_reduce(sums).tolist()
        self.loss, self.images = None if self.loss is None else loss, int(images)

    @property
    def information(self) -> float:
        """The mutual information of output and image as a fraction of the most that is possible, 0…1.

        It is ``H(mean of p) − mean of H(p)``: nothing if all images have the same outputs, certain or not.
        """
        mean = self._outputs / max(1, self.images)
        known = torch.special.entr(mean).sum().item() - self._entropy / max(1, self.images)
        return known / math.log(max(2, min(len(mean), self.images)))

    def scores(self) -> dict[str, float | int]:
        self._scores = self._scores or self._computed()
        return dict(self._scores)

    def _computed(self) -> dict[str, float | int]:
        found: dict[str, float | int] = {}
        if self.classes > 1 and len(self.features) > 1:
            found["knn"] = nearest_accuracy(self.features, self.labels, self.classes)
            if self.keep and len(self.features) > 3:
                found["linear_accuracy"] = probe_accuracy(self.features, self.labels, self.classes)
        some = self.features[spread(len(self.features), PAIRED)]
        return {
            **found,
            "rankme": effective_rank(self.features),
            "uniformity": uniformity(some),
            **({} if self.loss is None else {"loss": self.loss / max(1, self.images)}),
            "images": self.images,
        }

    def collapse(self) -> tuple[str, str] | None:
        if self.images < 2 or len(self._outputs) < 2 or self.information >= TOLD_APART:
            return None
        share = f"{100 * self.information:.2g} % of what they could tell"
        what = f"the features have collapsed: the teacher's outputs are nearly the same for all images ({share})"
        return what, "lower --task.teacher-temperature and --lr, keep --task.centring, or take a larger --batch-size"
