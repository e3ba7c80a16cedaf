"""mIoU and speed of graphs compared with their model, and the limit on what int8 may lose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.data.images.augment import Augmentation
from vitrail.data.loading.sampler import some_items
from vitrail.deploy.export.expected_loss import CONFIDENCE, KEEP, Loss, no_judgement
from vitrail.deploy.export.export import Written
from vitrail.deploy.export.speeds import require_faster, slower, speeds_of
from vitrail.deploy.problems import ExportError
from vitrail.errors import DataError
from vitrail.models.inference import quickest_precision
from vitrail.runtime.observer import Observer
from vitrail.tasks.segmentation.evaluate import open_masks_for
from vitrail.tasks.segmentation.judging.metrics import SegmentationMetrics, mean
from vitrail.tasks.segmentation.learning.crops import SegmentationDataset
from vitrail.tasks.segmentation.predictor import SegmentationPredictor, in_python
from vitrail.weights.model_folder.folder import TrainedModel

CALIBRATED, SCORED = 100, 200
"""Largest numbers of crops that calibrate int8, and of images that are scored."""
TIMED = 8
"""Images in a batch for the comparison of speeds."""
MOST_LOST = 0.5
"""Points of mIoU that int8 may surely lose."""
HINT = f"calibrate with more images, or {KEEP}"


@dataclass(frozen=True)
class LostMiou(Loss):
    """The loss of mIoU in points; its error is the jackknife's over images (Efron and Stein 1981)."""

    images: int

    @classmethod
    def between(cls, before: SegmentationMetrics, after: SegmentationMetrics) -> "LostMiou":
        """Return the loss of a graph (``after``) compared with its model, on the same images."""
        count, one, other = len(before.rows), _counts(before), _counts(after)
        points = 100 * (_miou(one.sum(axis=0)) - _miou(other.sum(axis=0)))
        without = [100 * (_miou(one.sum(axis=0) - one[i]) - _miou(other.sum(axis=0) - other[i])) for i in range(count)]
        error = ((count - 1) * float(np.var(without))) ** 0.5  # the jackknife's
        least = points - NormalDist().inv_cdf(CONFIDENCE) * error
        return cls(points, error, least, answers=int((before.confusion.sum(axis=0) > 0).sum()), images=count)

    def require_small(self, limit: float) -> None:
        """Raise `ExportError` if int8 surely loses more than ``limit`` points, or if one class is predicted everywhere."""
        self.require(limit, "mIoU", f"{self.images} images", HINT)
        if self.answers == 1:
            raise no_judgement("pixels", HINT)


def _counts(metrics: SegmentationMetrics) -> np.ndarray:
    """Return the right, true and predicted pixels of each image and class: int64 (N, 3, K)."""
    return np.stack([np.stack([row.right, row.true, row.predicted]) for row in metrics.rows])


def _miou(counts: np.ndarray) -> float:
    """Return the mean IoU from right, true and predicted pixels (3, K)."""
    right, true, predicted = counts
    whole = true + predicted - right
    return mean(np.where(whole > 0, right / np.maximum(whole, 1), np.nan))


class MaskJudging:
    """The images for export and bench of a segmenter: training crops for the ranges of int8, others with masks for scores."""

    def __init__(
        self, plain: SegmentationPredictor, model: str | Path | TrainedModel, data: str | Path | None, observer: Observer
    ):
        self.plain, self.observer = plain, observer
        source, *_ = open_masks_for(plain.classes, model, data, None, observer.note)
        split = "val" if source.splits.get("val") else source.evaluation_split
        self.coding, scored = source.coding, source.split(split)
        known = source.splits.get("train")
        if not known:  # halves of the only images
            if len(scored) < 2:
                hint = "give more images, best with the splits train and val"
                raise DataError("one image cannot both calibrate and judge int8", where=source.source, hint=hint)
            known, scored = scored[::2], scored[1::2]
        self.items = some_items(scored, SCORED, 0)
        crops = SegmentationDataset(
            some_items(known, CALIBRATED, 0), plain.preparation, source.coding, Augmentation(crop="scaled")
        )
        self.calibration: Tensor = torch.cat([crops[0, number]["images"] for number in range(len(crops))])
        """Crops, uint8 (N, C, H, W)."""
        observer.note(f"calibrated on {len(crops)} crops, judged and scored on {len(self.items)} images ({split})")

    def limit(self, trained: TrainedModel, max_drop: float) -> Any:
        """Raise `AssertionError`: segmenters merge no tokens, which is refused before."""
        raise AssertionError("segmenters merge no tokens")

    def measured(self, written: Written, trained: TrainedModel, *, limit: float, force: bool, auto: bool) -> dict[str, Any]:
        """Return a graph's speed and mIoU compared with the model; raises `ExportError` for int8 that loses too much."""
        graph: SegmentationPredictor = written.predictor
        beside = written.floats or in_python(trained, quickest_precision(torch.device("cpu")))
        pixels = self.calibration[torch.arange(TIMED) % len(self.calibration)]
        figures = speeds_of(self.plain, graph, beside, pixels, self.observer)
        before, after = (self._scored(each) for each in _alike([self.plain, graph]))
        if graph.name.endswith("int8"):
            lost = LostMiou.between(before, after)
            figures["judged"] = lost.to_dict()
            if not force:
                lost.require_small(max(MOST_LOST, limit))
                if auto:
                    require_faster(figures)
            if what := slower(figures):
                self.observer.note(what)
        old, new = (metrics.scores() for metrics in (before, after))
        scores = {name: {"before": old[name], "after": new[name]} for name in ("miou", "pixel_accuracy")}
        return {**figures, "images": len(self.items), "labelled": True, "metric": "miou", **scores}

    def compared(self, predictors: Mapping[str, SegmentationPredictor]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield for each predictor its name, its scores, and its loss compared with the first predictor."""
        first: SegmentationMetrics | None = None
        for name, predictor in zip(predictors, _alike(list(predictors.values())), strict=True):
            metrics = self._scored(predictor)
            first = first or metrics
            scores = {key: value for key, value in metrics.scores().items() if key != "loss"}
            yield name, {**scores, "judged": LostMiou.between(first, metrics).to_dict()}

    def holds(self, row: Mapping[str, Any], max_drop: float) -> bool:
        """Return whether a row of the bench keeps its mIoU."""
        try:
            LostMiou(**row["judged"]).require_small(max_drop)
        except ExportError as error:
            self.observer.note(f"{row['name']} is not recommended: {error.what}")
            return False
        return True

    def _scored(self, predictor: SegmentationPredictor) -> SegmentationMetrics:
        self.observer.begin(f"{predictor.name} answers", len(self.items))
        evaluation = predictor.evaluation(self.items, self.coding, batch_size=TIMED)
        metrics: SegmentationMetrics = evaluation.run(on_batch=self.observer.advance)
        return metrics


def _alike(predictors: Sequence[SegmentationPredictor]) -> list[SegmentationPredictor]:
    """Return predictors that see images in the same way: in windows, if one of them takes only windows."""
    any_size = all(predictor.any_size for predictor in predictors)
    return [replace(predictor, any_size=any_size) for predictor in predictors]
