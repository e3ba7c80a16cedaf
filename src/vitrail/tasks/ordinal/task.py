"""Ordered classes, such as grades or ages, learned by cumulative logits."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.checks import refuse_given
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData
from vitrail.data.loading.batches import Batch
from vitrail.data.targets import Targets, class_targets
from vitrail.errors import ConfigError, DataError
from vitrail.models.base import ImageModel
from vitrail.runtime.processes import Processes
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.ordinal.settings import OrdinalSettings
from vitrail.tasks.task import Answers, Means, Metrics, Options
from vitrail.weights.model_folder.folder import TrainedModel


def cumulative_logits(logits: Tensor) -> Tensor:
    """Return the log-odds that the class is above each class but the highest: (B, K) to (B, K - 1).

    Classes stand in their order. With p = softmax(z) it is log P(y > k) - log P(y <= k), the cumulative logit of McCullagh 1980
    (Regression Models for Ordinal Data).
    """
    below = logits.logcumsumexp(dim=1)[:, :-1]
    above = logits.flip(1).logcumsumexp(dim=1).flip(1)[:, 1:]
    return above - below


def cumulative_loss(logits: Tensor, shares: Tensor) -> Tensor:
    """Return the mean cross-entropy of the K - 1 questions "is it above class k?", of each image: (B,).

    Args:
        logits: (B, K), of classes in their order.
        shares: (B, K), what the image has of each class; rows sum to 1.
    """
    above = 1 - shares.cumsum(dim=1)[:, :-1]
    losses = F.binary_cross_entropy_with_logits(cumulative_logits(logits), above.clamp(0, 1), reduction="none")
    return losses.mean(dim=1)


class Ordinal(ImageTask):
    """A model of classes that learns how far off a wrong class is.

    The model is an ordinary classifier, whose softmax says how likely each class is: the loss alone knows the order.

    Args:
        model: gives logits (B, K).
        preparation: normalizes the pixels.
        classes: their names, by index.
        order: the same names from the lowest to the highest.
        label_smoothing: fraction of the target that is spread over all classes.
    """

    by_rank: Tensor
    ranks: Tensor
    name = "ordinal"
    counts: ClassVar[tuple[str, ...]] = ("top1",)

    def __init__(
        self,
        model: ImageModel,
        preparation: Preparation,
        classes: Sequence[str],
        order: Sequence[str],
        *,
        label_smoothing: float = 0.0,
    ):
        super().__init__(model, preparation)
        self.classes, self.order, self.label_smoothing = list(classes), list(order), label_smoothing
        by_rank = torch.tensor([self.classes.index(name) for name in self.order])
        self.register_buffer("by_rank", by_rank, persistent=False)
        self.register_buffer("ranks", by_rank.argsort(), persistent=False)

    @classmethod
    def create(cls, model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Self:
        settings = options.task
        assert isinstance(settings, OrdinalSettings)
        others = {"--teacher": options.teacher is not None, "--balance": options.balance != "none"}
        refuse_given("it does not go with ordered classes", others)
        if data.multi_label:
            hint = "give images with one of the ordered classes"
            raise DataError("images have several labels each", where=data.source, hint=hint)
        order = settings.order or data.classes  # which are in natural order
        if sorted(order) != sorted(data.classes):
            what = f"the order has {', '.join(order)}; the classes are {', '.join(data.classes)}"
            raise ConfigError(what, where="task.order", hint="name every class once, from the lowest to the highest")
        return cls(model, preparation, data.classes, order, label_smoothing=options.label_smoothing)

    def targets(self, *, mixed: bool = False) -> Targets:
        return class_targets(len(self.classes), shares=mixed)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        logits, labels = self.network(self.images(batch)).float(), batch["labels"]
        shares = F.one_hot(labels, len(self.classes)).float() if labels.ndim == 1 else labels
        smoothed = shares * (1 - self.label_smoothing) + self.label_smoothing / len(self.classes)
        loss = cumulative_loss(logits[:, self.by_rank], smoothed[:, self.by_rank]).mean()
        return {"loss": loss, "top1": (logits.argmax(dim=1) == shares.argmax(dim=1)).sum()}

    def answer(self, batch: Batch) -> Answers:
        return {"logits": self.model(self.images(batch)).float()}

    def metrics(self, *, keep: bool = False) -> "OrdinalMetrics":
        return OrdinalMetrics(self.by_rank.cpu(), keep=keep)

    def floor(self, metrics: Metrics, items: Sequence[Any], known: Sequence[Any]) -> Floor:
        """Return the scores of the median class for all of the ``items``: no other has a lower mean absolute error."""
        ranks = self.ranks.cpu()[[item.target for item in items]]
        middle = int(ranks.median())
        error = (ranks - middle).abs().double().mean().item()
        return Floor(f"“{self.order[middle]}” for all", {"mean_absolute_error": error})

    def trained(self, model: ImageModel) -> TrainedModel:
        return TrainedModel(model, self.classes, self.preparation, False)


class OrdinalMetrics(Means):
    """Mean absolute error in classes, accuracy and loss of ``logits`` (B, K) against ``labels``, int64 (B,).

    Args:
        by_rank: the index of the class at each place in the order, (K,).
        keep: whether to keep the ranks of every image, for a report.
    """

    def __init__(self, by_rank: Tensor, *, keep: bool = False):
        super().__init__(self.of_each)
        self.by_rank, self.ranks = by_rank, by_rank.argsort()
        self.pairs: list[tuple[Tensor, Tensor]] | None = [] if keep else None

    def update(self, answers: Answers, batch: Batch) -> None:
        answers, batch = {"logits": answers["logits"].cpu()}, {**batch, "labels": batch["labels"].cpu()}
        super().update(answers, batch)
        if self.pairs is not None:
            self.pairs.append(self._ranks(answers, batch))

    def reduce(self, group: Processes) -> None:
        super().reduce(group)
        if self.pairs is not None:
            self.pairs = group.in_batches(self.pairs)

    def of_each(self, answers: Answers, batch: Batch) -> dict[str, Tensor]:
        """Return the distance of the likeliest class, whether it is the true one, and the loss, of each image: (B,) each."""
        guessed, true = self._ranks(answers, batch)
        logits = answers["logits"][:, self.by_rank]
        loss = cumulative_loss(logits, F.one_hot(true, len(self.by_rank)).float())
        return {"mean_absolute_error": (guessed - true).abs(), "top1": guessed == true, "loss": loss}

    def _ranks(self, answers: Answers, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.ranks[answers["logits"].argmax(dim=1)], self.ranks[batch["labels"]]

    @property
    def guesses(self) -> tuple[Tensor, Tensor]:
        """The places in the order of the likeliest and of the true class of every image: (N,) each; only what `keep` has kept."""
        guessed, true = zip(*(self.pairs or ()), strict=True)
        return torch.cat(guessed), torch.cat(true)


create = Ordinal.create
