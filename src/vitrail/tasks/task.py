"""The contract of a task with the training loop, checkpoints and evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from vitrail.data.images.augment import Augmentation
from vitrail.data.loading.batches import Batch, Samples
from vitrail.models.base import Model
from vitrail.runtime.processes import Processes
from vitrail.tasks.floor import Floor
from vitrail.tasks.settings import DistillationSettings, ScheduleSettings, TaskSettings
from vitrail.tasks.teachers import AnyTeacher

Answers = Mapping[str, Tensor]
"""A model's answers to the images of a batch, by name, each (B, …)."""


@dataclass(frozen=True)
class Options:
    """The part of a run's settings that decides its task."""

    task: TaskSettings
    distillation: DistillationSettings
    label_smoothing: float = 0.0
    balance: str = "none"
    tune: str = "all"
    teacher: AnyTeacher | None = None


@dataclass(frozen=True)
class Progress:
    """The position of a run in its schedule."""

    done: int
    """Steps before this one, of which a time limit may have skipped some."""
    total: int
    """Steps of the schedule."""


class Metrics:
    """Metrics of a model's predictions, added up batch by batch."""

    def take_items(self, items: Sequence[Any]) -> None:
        """Take all items, by their numbers in batches, before any `update`, for what their tensors do not hold."""

    def update(self, answers: Answers, batch: Batch) -> None:
        """Add a batch, which may have no rows at all."""
        raise NotImplementedError

    def reduce(self, group: Processes) -> None:
        """Add up the numbers of all processes."""
        raise NotImplementedError

    def scores(self) -> dict[str, float | int]:
        """Return the metrics by name, ``loss`` and the number of ``images`` among them: JSON-able."""
        raise NotImplementedError

    def details(self) -> dict[str, Any]:
        """Return the `scores` and further results of an evaluation: JSON-able."""
        return dict(self.scores())

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        """Return lines for people about the `details`, after the scores."""
        return []

    def picture(self) -> bytes | None:
        """Return a PNG of what the model does at the end of an epoch, for the folder of the run; every process calls it."""
        return None

    def remarks(self, details: Mapping[str, Any]) -> list[str]:
        """Return warnings about the `details`, and what the scores leave out."""
        return []


class Means(Metrics):
    """Metrics that are means over images: they hold a sum of each, whatever the number of images.

    Args:
        per_image: a batch and its predictions to the metrics of each image, (B,), by name.
    """

    def __init__(self, per_image: Callable[[Answers, Batch], Mapping[str, Tensor]]):
        self.per_image = per_image
        self.sums: dict[str, float] = {}
        self.images = 0

    def update(self, answers: Answers, batch: Batch) -> None:
        for name, values in self.per_image(answers, batch).items():
            self.sums[name] = self.sums.get(name, 0.0) + values.double().sum().item()
        self.images += len(batch["images"])

    def reduce(self, group: Processes) -> None:
        *sums, images = group.all_reduce(torch.tensor([*self.sums.values(), self.images], dtype=torch.float64)).tolist()
        self.sums, self.images = dict(zip(self.sums, sums, strict=True)), int(images)

    def scores(self) -> dict[str, float | int]:
        return {**{name: total / max(1, self.images) for name, total in self.sums.items()}, "images": self.images}


class Task(nn.Module):
    """A model and how it learns. The loop calls it on a batch and follows the gradient of its ``loss``.

    Other parts are submodules of the task. They are not shipped; checkpoints hold them, and so does the run folder beside the
    best model. Parts that are learned beside the model, such as a decoder, are trained and averaged as the model is. ``carried``
    parts are not: a momentum teacher, say, which the task moves in `after_step`.

    Args:
        model: is kept and shipped.
    """

    name: ClassVar[str]
    """As in `vitrail.task_registry`."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Metrics that `forward` counts beside the loss, for the progress line and the curve of training."""
    unit: ClassVar[str] = "images"
    """Name of the units that the loss is a mean over."""
    carried: ClassVar[tuple[str, ...]] = ()
    """Names of submodules that no gradient and no average moves; they stay in evaluation mode."""
    settling_changes_scores: ClassVar[bool] = False
    """True where `settle` changes metrics, so that the same items are evaluated anew."""
    scores_slower: ClassVar[bool] = False
    """True where scoring an item for the report takes longer than where epochs are compared: a text is searched for, say."""
    report_seconds: ClassVar[float] = 4.0
    """Seconds of one idle core that a report takes: imports, floors and plots."""
    report_needs_validation: ClassVar[bool] = False
    """True where the finished model holds something that is chosen by the validation split."""

    def __init__(self, model: Model):
        super().__init__()
        self.model: Any = model

    @classmethod
    def create(cls, model: Any, preparation: Any, data: Any, options: Options) -> Self:
        """Return the task of a run; raises `ConfigError` where settings, model or data do not fit it."""
        raise NotImplementedError

    def follow_schedule(self, schedule: ScheduleSettings) -> None:
        """Take the schedule of a run, for `before_step`; raises `ConfigError` for one that cannot be followed."""

    def before_step(self, progress: Progress) -> None:
        """Change what the next step sees; called before every step of training, and not before evaluation."""

    def after_step(self, progress: Progress, group: Processes) -> None:
        """Move what no gradient moves; called after every step that has changed the weights, in all processes of the group."""

    def dataset(
        self, items: Sequence[Any], augmentation: Augmentation | None = None, *, seed: int = 0, transform: Any = None
    ) -> Samples:
        """Return items as a loader puts them into batches; their random numbers come from ``seed``."""
        raise NotImplementedError

    def items_in(self, batch_size: int) -> int:
        """Return about how many items a batch of this size has."""
        return batch_size

    def units(self, batch: Batch) -> int:
        """Return how many of its `unit` a batch has."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the ``loss`` of a batch, a mean over its units, and for each of `counts` in how many units it is true."""
        raise NotImplementedError

    def answer(self, batch: Batch) -> Answers:
        """Return the predictions for a batch in evaluation mode; the prediction for an item does not depend on the others."""
        raise NotImplementedError

    def follow(self, batch: Batch) -> Answers:
        """Return predictions as `answer` does, for comparing epochs; a task whose predictions take long may give quicker ones."""
        return self.answer(batch)

    def metrics(self, *, keep: bool = False) -> Metrics:
        """Return metrics of those predictions; with ``keep`` they also hold what a report shows of every item."""
        raise NotImplementedError

    def floor(self, metrics: Metrics, items: Sequence[Any], known: Sequence[Any]) -> Floor | None:
        """Return the scores of one answer for all of the ``items``, which an untrained model is no better than.

        Args:
            metrics: of the model on these items, made with ``keep``.
            items: what was scored.
            known: what the model has learned from.
        """
        return None

    def settle(self, validation: Metrics) -> str:
        """Choose by the validation split what the finished model holds, and return a sentence about it or none.

        Called where `report_needs_validation`.
        """
        return ""

    def trained(self, model: Any) -> Any:
        """Return the model, or another of the same configuration, with all that its folder must hold to be used."""
        raise NotImplementedError

    def trained_parts(self) -> nn.ModuleDict:
        """Return the parts that are learned beside the model, by name."""
        return nn.ModuleDict({name: part for name, part in self.named_children() if name not in ("model", *self.carried)})

    def carried_parts(self) -> nn.ModuleDict:
        """Return the parts that are neither trained nor averaged, by name; see `carried`."""
        return nn.ModuleDict({name: self.get_submodule(name) for name in self.carried})
