"""Predictor of masks, in Python or in an engine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from vitrail.checks import require_positive
from vitrail.data.images.decode import upright_size
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.drawn_pictures import drawn_pictures
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import Predictor, Prepared, Sink, network_of, predict_each, require_finite
from vitrail.errors import DataError, ModelFileError
from vitrail.models.configs.base import Size
from vitrail.runtime.device import Precision
from vitrail.tasks.answer_table import Row
from vitrail.tasks.evaluation import StreamedEvaluation
from vitrail.tasks.options import OptionPath, Options
from vitrail.tasks.segmentation.answer import HEAD, Palette, SegmentationAnswer
from vitrail.tasks.segmentation.files.coding import Coding
from vitrail.tasks.segmentation.judging.metrics import SegmentationMetrics
from vitrail.tasks.segmentation.learning.crops import SegmentationDataset
from vitrail.tasks.segmentation.settings import OVERLAP, Overlap
from vitrail.tasks.segmentation.task import answers_of
from vitrail.tasks.segmentation.weights import multiple_of, no_masks, require_segmenter, view_of
from vitrail.tasks.segmentation.windows import View, logits_in_bands
from vitrail.weights.model_folder.folder import TrainedModel

ROW_PIXELS = 512**2
"""Pixels of an image that count as one image of a batch."""


class SegmentationOptions(Options):
    """Options of `vitrail predict` with a segmenter."""

    refusal: ClassVar[str] = "the model predicts masks, not labels"

    window: Size | None = None
    """Height and width of the windows; by default the whole image."""
    overlap: Overlap = OVERLAP
    """Fraction of a window's side that the next window shows, too."""
    mirror: bool = False
    """Average the logits of an image and of its mirror image."""
    masks: OptionPath | None = None
    """Folder to write masks to, indexed PNGs with the classes' colours."""
    pictures: OptionPath | None = None
    """Folder to write images with the masks laid over them to."""

    @classmethod
    def missing(cls, where: object) -> ModelFileError:
        return no_masks(where)


SETTINGS = SegmentationOptions


@dataclass(frozen=True)
class SegmentationPredictor(Predictor):
    """Predictor of a segmenter, in Python or in an engine."""

    task: ClassVar[str] = "segment"
    name: str
    classes: Sequence[str]
    colors: Palette
    preparation: Preparation
    logits: Callable[[Tensor], Tensor]
    """Function from pixels, uint8 (B, C, H, W), to float32 logits (B, K, h, w), on the CPU; not thread-safe."""
    multiple: tuple[int, int]
    """Divisors of the heights and widths that it takes; see `multiple_of`."""
    any_size: bool = True
    """False if it takes only images of the preparation's size."""
    settings: SegmentationOptions = field(default_factory=SegmentationOptions)

    @property
    def network(self) -> Callable[[Tensor], Tensor]:
        """Function from pixels to finite logits; raises `ModelFileError`."""
        return lambda pixels: require_finite(self.logits(pixels))

    @property
    def view(self) -> View:
        """The way in which images are passed to the network."""
        return view_of(self.preparation, self.settings, self.multiple, any_size=self.any_size)

    @property
    def head(self) -> Row:
        return HEAD

    def preprocess(self, source: Any) -> Prepared:
        """Decode an image at its own size; raises `DataError` for one that is too large without windows."""
        self.view.require_small(upright_size(source)[::-1], source if isinstance(source, str | Path) else "image")
        picture = self.preparation.decode(source)
        pixels = np.asarray(picture).reshape(picture.height, picture.width, -1).transpose(2, 0, 1)
        return Prepared([pixels])

    def size(self, source: Any) -> int:
        """Return the number of usual images that an image counts as, by its header; 1 if it cannot be read."""
        try:
            width, height = upright_size(source)
        except DataError:
            return 1
        return -(-width * height // ROW_PIXELS)

    def compute(self, rows: Sequence[np.ndarray], batch_size: int) -> list[np.ndarray]:
        """Return the mask of each image, uint8 or uint16 (H, W); images of equal size are computed together."""
        return [mask for part in _alike(rows, batch_size) for mask in self._masks(torch.from_numpy(np.stack(part)))]

    def _masks(self, images: Tensor) -> np.ndarray:
        with torch.inference_mode():
            return np.concatenate(list(self.bands(images)), axis=1)

    def bands(self, images: Tensor) -> Iterator[np.ndarray]:
        """Yield the masks of images (B, C, H, W) from the top, some rows at a time: uint8 or uint16 (B, rows, W)."""
        dtype = np.uint16 if len(self.classes) > 255 else np.uint8
        for _, logits in logits_in_bands(self.network, images, self.view):
            yield logits.argmax(dim=1).numpy().astype(dtype)

    def postprocess(self, outputs: Sequence[np.ndarray], prepared: Sequence[Prepared]) -> list[Any]:
        return [SegmentationAnswer(mask, self.classes, self.colors) for mask in outputs]

    def configured(self, settings: Any) -> Self:
        own = replace(self, settings=settings)
        _ = own.view  # refuses windows that do not fit the model
        return own

    def sinks(self, files: Sequence[Path]) -> list[Sink]:
        masks, pictures = self.settings.masks, self.settings.pictures
        return [
            *([] if masks is None else [drawn_pictures(masks, "masks", lambda file, answer: answer.indexed())]),
            *([] if pictures is None else [drawn_pictures(pictures, "images with masks")]),
        ]

    def evaluation(self, items: Sequence[Item], coding: Coding, *, batch_size: int, split: str = "all") -> StreamedEvaluation:
        """Return the evaluation of images with masks; raises `DataError` for an image that is too large without windows."""
        view = self.view
        for item in items:
            view.require_small(upright_size(item.image)[::-1], item.name)
        dataset = SegmentationDataset(items, self.preparation, coding)
        metrics = SegmentationMetrics(self.classes, keep=True)
        answer = nullcontext(lambda batch: answers_of(self.network, batch, view))
        return SegmentationEvaluation(items, split, dataset, metrics, answer, batch_size)


@dataclass
class SegmentationEvaluation(StreamedEvaluation):
    """An evaluation of images with masks."""

    def rows(self) -> list[Row]:
        """Return a row for each class of each image: its pixels in truth and prediction, and those of both."""
        metrics: SegmentationMetrics = self.metrics
        return [
            ["image", "class", "true", "predicted", "both", "iou"],
            *(
                [
                    self.items[row.number].name,
                    name,
                    str(true),
                    str(predicted),
                    str(right),
                    f"{right / (true + predicted - right):.6f}",
                ]
                for row in metrics.rows
                for name, true, predicted, right in zip(
                    metrics.classes, row.true.tolist(), row.predicted.tolist(), row.right.tolist(), strict=True
                )
                if true or predicted
            ),
        ]


def _alike(rows: Sequence[np.ndarray], most: int) -> Iterator[list[np.ndarray]]:
    """Yield the images in order, in parts of equal size and of at most ``most`` usual images."""
    part: list[np.ndarray] = []
    for row in rows:
        full = (len(part) + 1) * row[0].size > most * ROW_PIXELS or len(part) == most
        if part and (full or row.shape != part[0].shape):
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def in_python(
    trained: TrainedModel, precision: Precision | None = None, device: torch.device | str = "cpu", *, prepacked: bool = True
) -> SegmentationPredictor:
    """Return the predictor of a trained model; see `vitrail.deploy.predictor.in_python`."""
    own = require_segmenter(trained, "model")
    logits = network_of(own, precision, device, prepacked=prepacked, any_size=True)
    name = f"torch {precision or 'fp32'}"
    return SegmentationPredictor(name, own.labels, own.colors, own.preparation, logits, multiple_of(own.model))


def predict_masks(
    model: str | Path | TrainedModel | SegmentationPredictor,
    images: Picture | Iterable[Picture],
    *,
    window: int | tuple[int, int] | None = None,
    overlap: float = OVERLAP,
    mirror: bool = False,
    batch_size: int = 8,
    precision: Precision | None = None,
    engine: str = "auto",
) -> list[SegmentationAnswer]:
    """Predict the class of every pixel of each image.

    >>> (answer,) = predict_masks("runs/segment", "street.jpg")  # doctest: +SKIP
    >>> answer.areas, answer.indexed().save("mask.png")  # doctest: +SKIP

    Args:
        model: a run folder, a model folder, an exported or a loaded segmenter.
        images: as in `vitrail.predict`.
        window: height and width of windows in which the images are segmented, or the side of a square; by default each image as a
            whole. An image of over four megapixels needs windows.
        overlap: fraction of a window's side that the next window shows, too.
        mirror: averages the logits of an image and of its mirror image, which takes twice the time.
        batch_size: images per batch; a large image counts as several.
        precision, engine: as in `vitrail.predict`.

    Raises:
        ModelFileError: the model gives no masks.
        ConfigError: windows that the model does not take.
        DataError: an image cannot be read, or is too large without windows.
    """
    require_positive(batch_size=batch_size)
    pictures = pictures_of(images)
    opened = open_predictor(model, precision, engine=engine, images=len(pictures))
    if not isinstance(opened, SegmentationPredictor):
        raise no_masks(model if isinstance(model, str | Path) else "model")
    options = {"window": window, "overlap": overlap, "mirror": mirror}
    predictor = opened.configured(SegmentationOptions.read(options))
    return list(each_answer(predict_each(predictor, pictures, batch_size=batch_size)))
