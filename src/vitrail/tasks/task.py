"""The interface between a task and the training loop, checkpoints and evaluation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""A model's predictions for a batch: tensors (B, …) by name."""


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
    """Number of steps before this one, including steps that a time limit skipped."""
    total: int
    """Number of steps of the schedule."""
    epoch: int
    """Number of steps of an epoch."""


class Metrics:
    """Metrics of a model's predictions, accumulated batch by batch."""

    def take_items(self, items: Sequence[Any]) -> None:
        """Take all items before the first `update`, for metrics that need more than the tensors of a batch.

        The index of an item is its ``number`` in a batch.
        """

    def update(self, answers: Answers, batch: Batch) -> None:
        """Add a batch; it may have zero rows."""
        raise NotImplementedError

    def reduce(self, group: Processes) -> None:
        """Combine the metrics of all processes, in each of them."""
        raise NotImplementedError

    def scores(self) -> dict[str, float | int]:
        """Return the metrics by name, with ``loss`` and the number of ``images``; serializable as JSON."""
        raise NotImplementedError

    def details(self) -> dict[str, Any]:
        """Return the `scores` and further results of an evaluation; serializable as JSON."""
        return dict(self.scores())

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        """Return lines about the `details` to print after the scores."""
        return []

    def picture(self) -> bytes | None:
        """Return a PNG of what the model does at the end of an epoch, for the folder of the run; every process calls it."""
        return None

    def collapse(self) -> tuple[str, str] | None:
        """Return why the model can learn nothing any more, and what to change, which ends the run; None, the default, if not."""
        return None

    def remarks(self, details: Mapping[str, Any]) -> list[str]:
        """Return warnings about the `details`, and notes on items that the scores leave out."""
        return []


class Means(Metrics):
    """Metrics that are means over images; only their sums are stored.

    Args:
        per_image: a function from predictions and batch to the metrics of each image, tensors (B,) by name.
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
    """A model and its training. The training loop calls the task on a batch and minimizes its ``loss``.

    A task may have other submodules than the model. They are saved in checkpoints and in the run folder, but not exported with
    the model. Submodules such as a decoder are trained and averaged like the model. Those in ``carried``, such as a momentum
    teacher, are not trained: the task updates them in `after_step`.

    Args:
        model: the model that is saved and exported.
    """

    name: ClassVar[str]
    """The task's name in `vitrail.task_registry`."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Metrics other than the loss that `forward` counts, for the progress bar and the training curve."""
    unit: ClassVar[str] = "images"
    """Name of the units over which the loss is averaged."""
    carried: tuple[str, ...] = ()
    """Names of submodules that are neither trained nor averaged; they stay in evaluation mode."""
    computes: ClassVar[tuple[str, ...]] = ("answer",)
    """Names of the methods besides `forward` that call the model; with sharded parameters they gather them."""
    settling_changes_scores: ClassVar[bool] = False
    """True if `settle` changes metrics, so that the items must be evaluated again."""
    scores_slower: ClassVar[bool] = False
    """True if evaluation for the report is slower per item than evaluation after an epoch, for example by a beam search."""
    report_seconds: ClassVar[float] = 4.0
    """Time of a report in seconds on one idle core: imports, floors and plots."""
    report_needs_validation: ClassVar[bool] = False
    """True if the finished model includes values chosen on the validation split, such as thresholds."""

    def __init__(self, model: Model):
        super().__init__()
        self.model: Any = model

    @classmethod
    def create(cls, model: Any, preparation: Any, data: Any, options: Options) -> Self:
        """Create the task of a run; raises `ConfigError` if settings, model or data are not suitable."""
        raise NotImplementedError

    def follow_schedule(self, schedule: ScheduleSettings) -> None:
        """Take the schedule of a run, for `before_step`; raises `ConfigError` for an impossible schedule."""

    def before_step(self, progress: Progress) -> None:
        """Adapt model and images to the schedule; called before every training step, and not before evaluation."""

    def decay(self, progress: Progress) -> float | None:
        """Return the decay of the weights' moving average in a step; None, the default, for the run's ``training.ema``.

        A task that returns numbers always has an average, which is evaluated and saved in place of the weights.
        """
        return None

    def learn_from(self, average: "Task") -> None:
        """Take the task with the average of the weights, a momentum teacher; called before the first step, where there is one."""

    def paused_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that are not changed in this step, although they get a gradient; called after `before_step`."""
        return ()

    def after_step(self, progress: Progress, group: Processes) -> None:
        """Update parts without gradients; called after every step that changed the weights, in all processes of the group."""

    def dataset(
        self, items: Sequence[Any], augmentation: Augmentation | None = None, *, seed: int = 0, transform: Any = None
    ) -> Samples:
        """Return a data set of the items for a loader; ``seed`` determines its randomness."""
        raise NotImplementedError

    def items_in(self, batch_size: int) -> int:
        """Return the approximate number of items in a batch of this size."""
        return batch_size

    def units(self, batch: Batch) -> int:
        """Return the number of units (see `unit`) in a batch."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean ``loss`` over the units of a batch, and for each of `counts` the number of correct units."""
        raise NotImplementedError

    def answer(self, batch: Batch) -> Answers:
        """Return the predictions for a batch in evaluation mode; items must not influence each other."""
        raise NotImplementedError

    def follow(self, batch: Batch) -> Answers:
        """Return the predictions for comparing epochs: those of `answer`, or cheaper ones if `answer` is slow."""
        return self.answer(batch)

    def metrics(self, *, keep: bool = False) -> Metrics:
        """Return empty metrics for the predictions of `answer`; with ``keep`` they store the data of each item for a report."""
        raise NotImplementedError

    def floor(self, metrics: Metrics, items: Sequence[Any], known: Sequence[Any]) -> Floor | None:
        """Return the scores of a constant prediction for all ``items``, which a trained model should exceed; None by default.

        Args:
            metrics: the metrics of the model on these items, created with ``keep``.
            items: the scored items.
            known: the training items.
        """
        return None

    def settle(self, validation: Metrics) -> str:
        """Choose values of the finished model, such as thresholds, on the validation split; return a sentence about them, or "".

        It is called if `report_needs_validation` is True.
        """
        return ""

    def trained(self, model: Any) -> Any:
        """Return the trained model for a model folder, with labels and preparation; ``model`` has this task's configuration."""
        raise NotImplementedError

    def trained_parts(self) -> nn.ModuleDict:
        """Return the submodules other than the model that are trained, by name."""
        return nn.ModuleDict({name: part for name, part in self.named_children() if name not in ("model", *self.carried)})

    def carried_parts(self) -> nn.ModuleDict:
        """Return the submodules that are neither trained nor averaged, by name; see `carried`."""
        return nn.ModuleDict({name: self.get_submodule(name) for name in self.carried})
