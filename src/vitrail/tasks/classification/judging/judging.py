"""Accuracy and speed of graphs compared with their model, and limits on the loss by int8 and token merging."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.deploy.export.expected_loss import MOST_LOST
from vitrail.deploy.export.export import Written
from vitrail.deploy.export.merging import TooMuchLostError, merging, strongest
from vitrail.deploy.export.speeds import require_faster, slower, speeds_of
from vitrail.deploy.problems import ExportError
from vitrail.models.inference import quickest_precision
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.judging.int8_check import Judge, Judged, require_accuracy
from vitrail.tasks.classification.judging.samples import BATCH, samples_of
from vitrail.tasks.classification.judging.worth import loss_of, points_lost
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.tasks.classification.predictor import LabelPredictor, in_python
from vitrail.weights.model_folder.folder import TrainedModel

Row = dict[str, Any]


class Judging:
    """The images for export and bench of a model, and measurements of graphs on them. A run has its own images."""

    def __init__(self, plain: LabelPredictor, model: str | Path | TrainedModel, data: str | Path | None, observer: Observer):
        self.plain, self.observer = plain, observer
        self.samples = samples_of(model, plain, data, observer)
        self.judge = Judge(plain, self.samples, observer)

    @property
    def calibration(self) -> Tensor:
        """Prepared pixels, uint8 (N, C, H, W), for the ranges of activations in int8."""
        return self.samples.calibration.pixels

    def limit(self, trained: TrainedModel, max_drop: float) -> "MergingLimit":
        """Return the limit on the loss by merging, of ``max_drop`` points."""
        return MergingLimit(trained, self.judge, max_drop)

    def measured(self, written: Written, trained: TrainedModel, *, limit: float, force: bool, auto: bool) -> Row:
        """Return a graph's speed and accuracy compared with the model; raises `ExportError` for int8 that loses too much."""
        graph, reporting, observer = written.predictor, self.samples.reporting, self.observer
        beside = written.floats or in_python(trained, quickest_precision(torch.device("cpu")))
        figures = speeds_of(self.plain, graph, beside, reporting.pixels[:BATCH], observer)
        if graph.name.endswith("int8") and not force:
            judged = self.judge(graph)
            require_accuracy(judged, max(MOST_LOST, limit))
            if judged.elsewhere is not None:
                shown = f"the judging images clearly show {judged.shown} of {judged.labels} labels"
                observer.note(f"{shown}: int8 is judged on recoloured and random ones, too")
            if auto:
                require_faster(figures)
            elif what := slower(figures):
                observer.note(what)
            figures |= {"judged": judged.to_dict()}
        return figures | {"samples": str(self.samples)} | loss_of(self.plain, graph, reporting, observer)

    def compared(self, predictors: Mapping[str, LabelPredictor]) -> Iterator[tuple[str, Row]]:
        """Yield for each predictor its name, its accuracy, and its loss compared with the first predictor."""
        judge = Judge(next(iter(predictors.values())), self.samples, self.observer)
        for name, predictor in predictors.items():
            metrics = self.samples.reporting.evaluate(predictor, self.observer, name)
            yield name, {**accuracy(metrics), "judged": judge(predictor).to_dict()}

    def holds(self, row: Row, max_drop: float) -> bool:
        return holds(row, max_drop, self.observer)


def accuracy(metrics: LabelMetrics) -> Row:
    """Return the scores for a row of the bench."""
    scores = metrics.scores()
    return {**{name: scores[name] for name in scores if name != "loss"}, "certainty": metrics.certainty}


def holds(row: Row, max_drop: float, observer: Observer) -> bool:
    judged = Judged(**row["judged"])
    if row["precision"] != "int8":
        return judged.least <= max_drop
    try:
        require_accuracy(judged, max_drop)
    except ExportError as error:
        observer.note(f"{row['name']} is not recommended: {error.what}")
        return False
    return True


class MergingLimit:
    """The limit on the loss by merging: ``max_drop`` points of accuracy, and of the mean probability of the true label."""

    def __init__(self, trained: TrainedModel, judge: Judge, max_drop: float):
        self.trained, self.judge, self.max_drop = trained, judge, max_drop
        self.samples, self.observer = judge.samples, judge.observer
        self.precision = quickest_precision(torch.device("cpu"))
        self.before = self.samples.evaluate(in_python(trained, self.precision), self.observer, "the model")

    def strongest(self) -> tuple[int, ...]:
        """Return the merging schedule (patches per block) that merges most within the limit, measured by torch."""
        found = strongest(self.trained.config, self._allowed)
        if not any(found):
            self.observer.note(f"no merging loses less than {self.max_drop:g} points")
        return found

    def _allowed(self, counts: tuple[int, ...]) -> bool:
        merged = in_python(merging(self.trained, counts), self.precision)
        answers = self.samples.evaluate(merged, self.observer, f"merging {max(counts)} patches at a time")
        return max(points_lost(self.before, answers)) <= self.max_drop

    def require(self, predictor: LabelPredictor) -> None:
        """Raise `TooMuchLostError` for a graph, with merging and other changes, that certainly loses more than the limit."""
        judged = self.judge(predictor)
        if judged.least > self.max_drop:
            self.observer.note(f"{predictor.name} with merging loses {judged}; it is tried with less of it")
            raise TooMuchLostError
