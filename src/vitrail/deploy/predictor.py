"""Whatever answers, in the one form that predictions, evaluations and the server know."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.targets import class_targets
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import ImageModel, Model
from vitrail.models.inference import for_inference, in_evaluation_mode
from vitrail.runtime.device import Precision
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.classification.multi_label import label_metrics
from vitrail.tasks.classification.single_label import LabelMetrics
from vitrail.tasks.evaluation import evaluate
from vitrail.tasks.task import Answers
from vitrail.weights.model_folder.classifier_output import Answer, Labelled
from vitrail.weights.model_folder.folder import TrainedModel

OnBatch = Callable[[int], None]


@dataclass(frozen=True)
class Predictor(Labelled):
    """A model that only answers, in Python or behind an engine."""

    name: str
    """What runs it, in which precision: ``torch fp32``."""
    labels: list[str]
    """A name for every logit, by index; at least one."""
    multi_label: bool
    """Whether an image may have several labels, or none."""
    preparation: Preparation
    """What makes pixels of a picture."""
    logits: Callable[[Tensor], Tensor]
    """Prepared pixels, uint8 (B, C, H, W), to float32 (B, classes), on the CPU; for one thread at a time."""
    thresholds: Sequence[float] = ()
    reject: bool = False

    @property
    def run(self) -> Callable[[Tensor], Tensor]:
        """What it computes, by a name that all predictors have."""
        return self.logits

    def with_mirror_images(self) -> "Predictor":
        """The same, whose logits are the mean of its answers to an image and to its mirror image, in twice the time."""

        def logits(pixels: Tensor) -> Tensor:
            return (self.logits(pixels) + self.logits(pixels.flip(-1))) / 2

        return replace(self, logits=logits)

    def rejecting(self) -> "Predictor":
        """Return the same predictor, which says “none of these” of an image whose surest label does not reach its threshold.

        Raises:
            ConfigError: the model was trained without such a threshold, or an image may have no label anyway.
        """
        if self.multi_label:
            hint = "leave it out: labels that do not reach their thresholds are left out anyway"
            raise ConfigError("the model may give an image no label", where="--reject", hint=hint)
        if not self.thresholds:
            hint = "train it on, or write thresholds into its config.json: a run chooses them on validation or training images"
            raise ConfigError("the model has no threshold to reject images by", where="--reject", hint=hint)
        return replace(self, reject=True)

    def probabilities(self, pixels: Tensor) -> Tensor:
        """Prepared pixels, uint8 (B, C, H, W), to probabilities (B, classes): a softmax, or for several labels sigmoids.

        Raises:
            ModelFileError: the model's answers are not finite.
        """
        logits = require_finite(self.logits(pixels))
        return logits.sigmoid() if self.multi_label else logits.softmax(dim=1)

    def best(self, pixels: Tensor, top: int) -> list[Answer]:
        """The ``top`` labels of prepared pixels, uint8 (B, C, H, W), and what is told; see `Labelled.answers`."""
        return self.answers(self.probabilities(pixels), top)

    def dataset(self, items: list[Item]) -> ImageDataset:
        """Items of its own labels, as it takes them."""
        return ImageDataset(items, self.preparation, targets=class_targets(len(self.labels), shares=self.multi_label))

    def answer(self, batch: Batch) -> Answers:
        """Its answers to a batch, as `vitrail.tasks.evaluation.evaluate` takes them."""
        return {"logits": self.logits(batch["images"])}

    def metrics(self, *, keep: bool = False) -> LabelMetrics:
        """Metrics for its answers; ``keep`` also keeps the logits of every image."""
        return label_metrics(multi_label=self.multi_label, keep=keep, thresholds=self.thresholds)

    def evaluate(
        self,
        items: list[Item],
        *,
        batch_size: int,
        workers: int = 0,
        keep: bool = False,
        on_batch: OnBatch | None = None,
        group: Processes = ALONE,
    ) -> LabelMetrics:
        """Its metrics on items with its own labels; `vitrail.evaluate` describes the arguments."""
        loader = EpochLoader(self.dataset(items), batch_size, shuffle=False, workers=workers, part=(group.rank, group.count))
        with kept_memory():
            metrics = evaluate(self.answer, loader, self.metrics(keep=keep), on_batch=on_batch, group=group)
        require_finite(torch.tensor(metrics.sums["loss"]))  # of all processes, so that they stop together
        return metrics


def in_python(
    trained: TrainedModel, precision: Precision = "fp32", device: torch.device | str = "cpu", *, prepacked: bool = True
) -> Predictor:
    """A trained model as it is. Prepacking its weights (``prepacked``) takes longer than it saves for a handful of images.

    Raises:
        ModelFileError: it gives vectors, or heatmaps.
    """
    require_classes(trained)
    answers = answering(trained, precision, device, prepacked=prepacked)

    def logits(pixels: Tensor) -> Tensor:
        found = answers(pixels)
        if found.shape[1:] != (len(trained.labels),):
            what = f"the model answers with {tuple(found.shape)} for {len(pixels)} images, and has {len(trained.labels)} labels"
            raise ModelFileError(what, where="model", hint="give a name for each number that it gives of an image")
        return found

    return Predictor(f"torch {precision}", trained.labels, trained.multi_label, trained.preparation, logits, trained.thresholds)


def answering(
    trained: TrainedModel,
    precision: Precision = "fp32",
    device: torch.device | str = "cpu",
    *,
    prepacked: bool = True,
    any_size: bool = False,
) -> Callable[[Tensor], Tensor]:
    """What a trained model answers to prepared pixels, uint8 (B, C, H, W), in float32 on the CPU; see `in_python`.

    They have the model's own size, or ``any_size`` that it can take.
    """
    model = in_evaluation_mode(trained.model, device)
    network: nn.Module = model.at_any_size() if any_size else model
    prepacked = prepacked and isinstance(model, Model)  # somebody's own module may know nothing of it
    if prepacked or precision != "fp32" or next(model.parameters()).dtype != torch.float32:
        network = for_inference(network, precision)

    @torch.inference_mode()
    def answers(pixels: Tensor) -> Tensor:
        found: Tensor = network(trained.preparation.normalize(pixels.to(device)))
        return found.float().cpu()

    return answers


def require_classes(model: Labelled) -> None:
    """Refuse a model that gives vectors, or heatmaps."""
    if isinstance(model, TrainedModel) and isinstance(model.model, ImageModel) and model.config.answer != "vector":
        raise no_classes()
    if not model.labels:
        raise ModelFileError(
            "the model gives vectors, not classes", where="model", hint="teach it yours: vitrail train --from MODEL --data FOLDER"
        )


def no_classes() -> ModelFileError:
    """The error for a model that finds joints where classes are wanted."""
    what = "the model gives heatmaps, not classes"
    hint = "give a model that was taught classes; what finds joints is asked by vitrail predict, or vitrail.predict_poses"
    return ModelFileError(what, where="model", hint=hint)


def require_finite(answers: Tensor) -> Tensor:
    """The same answers, unless one of them is not finite."""
    if not answers.isfinite().all():
        raise ModelFileError(
            "the model answers with values that are not finite", where="model", hint="its weights or its preparation are damaged"
        )
    return answers
