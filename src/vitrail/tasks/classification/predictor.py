"""The predictor of labels for images, by torch or an engine."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vitrail.checks import require_positive
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.prefetch import each_answer
from vitrail.data.targets import class_targets
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import Predictor, Prepared, Sink, network_of, predict_each, require_finite
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import ImageModel
from vitrail.runtime.device import Precision
from vitrail.task_registry import task_row
from vitrail.tasks.answer_table import Row
from vitrail.tasks.classification.labels.answer import LabelAnswer, evaluated_rows, head_of
from vitrail.tasks.classification.labels.multi_label import label_metrics
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.tasks.classification.labels.sorting import sorted_copies
from vitrail.tasks.evaluation import StreamedEvaluation
from vitrail.tasks.options import OptionPath, Options
from vitrail.tasks.task import Answers
from vitrail.weights.model_folder import classifier_output
from vitrail.weights.model_folder.classifier_output import Labelled, Labels
from vitrail.weights.model_folder.folder import TrainedModel

TOP = 5
"""Default number of labels of each image."""


class LabelOptions(Options):
    """Options of `vitrail predict` for classifiers."""

    top: int | None = None
    """Number of labels of each image; None for the default."""
    mirror: bool = False
    """Whether to average the logits of each image and its mirror image."""
    reject: bool = False
    """Whether an image gets no label if its most probable label is below the threshold."""
    sort_into: OptionPath | None = None
    """A folder to copy images to, in subfolders by label."""


SETTINGS = LabelOptions


@dataclass(frozen=True)
class LabelPredictor(Labelled, Predictor):
    """A model that predicts labels, computed by torch or an engine."""

    task: ClassVar[str] = "classification"
    name: str
    labels: list[str]
    """The name of each logit, by index; at least one."""
    multi_label: bool
    preparation: Preparation
    logits: Callable[[Tensor], Tensor]
    """A function from prepared pixels, uint8 (B, C, H, W), to logits on the CPU, float32 (B, classes); not thread-safe."""
    thresholds: Sequence[float] = ()
    reject: bool = False
    settings: LabelOptions = field(default_factory=LabelOptions)

    @property
    def network(self) -> Callable[[Tensor], Tensor]:
        return self.logits

    @property
    def top(self) -> int:
        """Number of labels of each image."""
        return self.settings.top or TOP

    @property
    def head(self) -> Row:
        return head_of(self, self.top)

    def preprocess(self, source: Any) -> Prepared:
        return Prepared([self.preparation.pixels(source)])

    def postprocess(self, outputs: Any, prepared: Sequence[Prepared]) -> list[Any]:
        whole = self.multi_label and self.settings.top is None
        logits = outputs if isinstance(outputs, Tensor) else torch.stack(list(outputs))
        answers = self.answers(self._probabilities(logits), self.top)
        return [LabelAnswer.of(self, answer, shows_accepted=whole) for answer in answers]

    def configured(self, settings: Any) -> Self:
        mirrored = self.with_mirror_images() if settings.mirror else self
        return replace(mirrored.rejecting() if settings.reject else mirrored, settings=settings)

    def sinks(self, files: Sequence[Path]) -> list[Sink]:
        folder = self.settings.sort_into
        return [] if folder is None else [sorted_copies(folder, self, files)]

    def with_mirror_images(self) -> Self:
        """Return the predictor with logits averaged over each image and its mirror image, in twice the time."""

        def logits(pixels: Tensor) -> Tensor:
            return (self.logits(pixels) + self.logits(pixels.flip(-1))) / 2

        return replace(self, logits=logits)

    def rejecting(self) -> Self:
        """Return the predictor that rejects images below the threshold; raises `ConfigError` for a model without threshold."""
        if self.multi_label:
            hint = "leave --reject out: labels below their thresholds are left out anyway"
            raise ConfigError("the model may give an image no label", where="--reject", hint=hint)
        if not self.thresholds:
            hint = "train the model further, which chooses a threshold, or write thresholds into its config.json"
            raise ConfigError("the model has no threshold to reject images by", where="--reject", hint=hint)
        return replace(self, reject=True)

    def probabilities(self, pixels: Tensor) -> Tensor:
        """Return the probabilities (B, classes) of prepared pixels, uint8 (B, C, H, W); raises `ModelFileError` unless finite."""
        return self._probabilities(self.logits(pixels))

    def _probabilities(self, logits: Tensor) -> Tensor:
        require_finite(logits)
        return logits.sigmoid() if self.multi_label else logits.softmax(dim=1)

    def best(self, pixels: Tensor, top: int) -> list[classifier_output.Answer]:
        """Return the ``top`` labels of prepared pixels, uint8 (B, C, H, W); see `Labelled.answers`."""
        return self.answers(self.probabilities(pixels), top)

    def dataset(self, items: list[Item]) -> ImageDataset:
        return ImageDataset(items, self.preparation, targets=class_targets(len(self.labels), shares=self.multi_label))

    def answer(self, batch: Batch) -> Answers:
        """Return the predictions for a batch, in the form for `vitrail.tasks.evaluation.evaluate`."""
        return {"logits": self.logits(batch["images"])}

    def metrics(self, *, keep: bool = False) -> LabelMetrics:
        """Return empty metrics for the predictions; ``keep`` stores the logits of every image."""
        return label_metrics(multi_label=self.multi_label, keep=keep, thresholds=self.thresholds)

    def evaluation(self, items: list[Item], *, batch_size: int, split: str = "all", keep: bool = False) -> "LabelEvaluation":
        """Return the evaluation on items whose labels are the predictor's."""
        opened = nullcontext(self.answer)
        return LabelEvaluation(items, split, self.dataset(items), self.metrics(keep=keep), opened, batch_size, predictor=self)

    def evaluate(self, items: list[Item], *, batch_size: int, keep: bool = False, **how: Any) -> LabelMetrics:
        """Return the metrics on items whose labels are the predictor's; ``how`` as in `Evaluation.run`."""
        metrics: LabelMetrics = self.evaluation(items, batch_size=batch_size, keep=keep).run(**how)
        return metrics


@dataclass
class LabelEvaluation(StreamedEvaluation):
    """The evaluation of a predictor on images with its labels."""

    predictor: LabelPredictor | None = None

    def run(self, **how: Any) -> LabelMetrics:
        metrics: LabelMetrics = super().run(**how)
        require_finite(torch.tensor(metrics.sums["loss"]))  # summed over all processes, so that they stop together
        return metrics

    def rows(self) -> list[Row]:
        assert self.predictor is not None
        return evaluated_rows(self.predictor, self.items, self.metrics.probabilities)


class LabelDescription(Description):
    """The description of a graph with logits as output."""

    task: ClassVar[str] = "classification"
    skeleton: None = None
    """Always null; the field exists in the graphs of all versions."""

    def predictor(self, network: Callable[[Tensor], Tensor], name: str) -> LabelPredictor:
        return LabelPredictor(name, list(self.labels), self.multi_label, self.preparation, network, self.thresholds)


def in_python(
    trained: TrainedModel, precision: Precision | None = None, device: torch.device | str = "cpu", *, prepacked: bool = True
) -> LabelPredictor:
    """Return the torch predictor of a trained model; raises `ModelFileError` unless it has one logit for each label."""
    require_classes(trained)
    network = network_of(trained, precision, device, prepacked=prepacked)

    def logits(pixels: Tensor) -> Tensor:
        found = network(pixels)
        if found.shape[1:] != (len(trained.labels),):
            what = f"the model returns {tuple(found.shape)} for {len(pixels)} images, but has {len(trained.labels)} labels"
            raise ModelFileError(what, where="model", hint="give one label for each output of the model")
        return found

    name = f"torch {precision or 'fp32'}"
    return LabelPredictor(name, trained.labels, trained.multi_label, trained.preparation, logits, trained.thresholds)


def require_classes(model: Labelled) -> None:
    """Raise `ModelFileError` for a model that returns vectors or heatmaps."""
    if isinstance(model, TrainedModel) and isinstance(model.model, ImageModel) and model.config.answer != "vector":
        raise no_classes(model.config.answer)
    if not model.labels:
        raise ModelFileError(
            "the model gives vectors, not classes", where="model", hint="train it: vitrail train --from MODEL --data FOLDER"
        )


def no_classes(answers: str) -> ModelFileError:
    """Return the error for a model of ``answers`` where a classifier is needed."""
    others = "for a pose model vitrail.predict_poses, for a segmenter vitrail.predict_masks"
    hint = f"give a classifier; use the command vitrail predict, or in Python {others}"
    return ModelFileError(f"the model gives {answers}, not classes", where="model", hint=hint)


def of_classes(predictor: Predictor) -> LabelPredictor:
    """Return ``predictor`` if it predicts labels; raises `ModelFileError` for any other."""
    if not isinstance(predictor, LabelPredictor):
        raise no_classes(task_row(predictor.task).answers)
    return predictor


def predict(
    model: str | Path | TrainedModel | LabelPredictor,
    images: Picture | Iterable[Picture],
    *,
    top: int | None = TOP,
    batch_size: int = 32,
    precision: Precision | None = None,
    engine: str = "auto",
    reject: bool = False,
) -> list[Labels]:
    """Return the ``top`` labels of every image with their probabilities, best first.

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        images: one image or several. An image is a path, the content of a file, an open file, a Pillow image, or pixels, uint8 or
            floats of 0…1: for NumPy (H, W), (H, W, 3) or (B, H, W, 3), for torch (H, W), (3, H, W) or (B, 3, H, W).
        top: number of labels per image. None returns the accepted labels: the most probable one, or for a multi-label model
            all labels whose probabilities reach their thresholds, possibly none.
        batch_size: images per batch.
        precision: fp32 (default) or bf16, for a model that torch runs.
        engine: the engine that runs an exported model; ``auto`` takes the faster one.
        reject: whether an image gets no label if its most probable label is below the threshold from the validation images.

    Raises:
        ConfigError: ``reject`` is True, and the model has no threshold.
        DataError: an image cannot be read, or a value is no image.
    """
    count = 1 if top is None else top
    require_positive(top=count, batch_size=batch_size)
    pictures = pictures_of(images)
    predictor = of_classes(open_predictor(model, precision, engine=engine, images=len(pictures)))
    predictor = predictor.configured(LabelOptions(top=count, reject=reject))
    answers = each_answer(predict_each(predictor, pictures, batch_size=batch_size))
    return [
        answer.accepted if top is None or not (answer.accepted or predictor.multi_label) else answer.best for answer in answers
    ]
