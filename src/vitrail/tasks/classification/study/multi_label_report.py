"""The part of a report for multi-label models: average precision, thresholds, and missed classes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    classification_report,
    precision_recall_fscore_support,
)

from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup
from vitrail.study.page.tables import Score, class_table
from vitrail.study.quality.calibration import BINS, calibration
from vitrail.tasks.classification.labels.multi_label import choose_thresholds
from vitrail.tasks.classification.study.predictions import SHEET, Predictions


class MultiLabel:
    """Scores and sections for multi-label predictions. Default thresholds are chosen on the same images."""

    def __init__(self, predictions: Predictions, thresholds: Sequence[float] = (), chosen_on: str = "", warning: str = ""):
        self.predictions, self.chosen_on, self.warning = predictions, chosen_on if thresholds else THESE, warning
        self.true = np.zeros(predictions.probabilities.shape, dtype=bool)
        for image, item in enumerate(predictions.items):
            self.true[image, list(item.labels)] = True
        self.thresholds = np.array(thresholds or choose_thresholds(self.true, predictions.probabilities))
        self.predicted = predictions.probabilities >= self.thresholds
        self.columns = [1] if len(predictions.classes) == 1 else list(range(len(predictions.classes)))
        """Classes for scikit-learn; a single class has the index 1, since 0 means images without it."""
        self.precision, self.recall, self.f1, self.images = precision_recall_fscore_support(
            self.true, self.predicted, labels=self.columns, zero_division=0
        )

    @property
    def text(self) -> str:
        """scikit-learn's classification report, by the thresholds."""
        names = self.predictions.classes
        return classification_report(
            self.true, self.predicted, labels=self.columns, target_names=names, digits=4, zero_division=0
        )

    def cards(self) -> Iterator[tuple[str, str]]:
        scores, shown = self.predictions.scores, self.images > 0
        first = f"the surest class is correct on {100 * scores['top1']:.1f} %"
        yield f"{100 * scores['map']:.2f} %", f"mean average precision on {self.predictions.images}; {first}"
        yield f"{100 * self.f1[shown].mean() if shown.any() else 0:.1f} %", f"mean F1, thresholds from {self.chosen_on}"
        yield f"{scores['loss']:.3f}", "binary cross-entropy"

    def sections(self, plots: Path) -> Iterator[Markup]:
        yield self._per_class()
        yield self._calibration(plots / "calibration.png")
        yield self._worst_ranked(plots / "mistakes.png")

    def _per_class(self) -> Markup:
        def where_shown(values: np.ndarray) -> np.ndarray:
            return np.where(self.images, values, np.nan)

        scores = [
            Score("threshold", self.thresholds, averaged=False),
            Score("precision", where_shown(self.precision)),
            Score("recall", where_shown(self.recall)),
            Score("F1", where_shown(self.f1)),
            Score("average precision", average_precisions(self.true, self.predictions.probabilities)),
        ]
        how = (
            f"A class is predicted from its threshold on: the probability of the best F1 on {self.chosen_on}, nearer to one half "
        )
        how += "where it rests on few of them."
        if self.chosen_on == THESE:
            how += " That flatters precision, recall and F1."
        return page.section(
            "Classes",
            page.paragraph(how),
            *([page.paragraph(f"Warning: {self.warning}.")] if self.warning else []),
            class_table(self.predictions.classes, self.images, scores),
        )

    def _calibration(self, file: Path) -> Markup:
        made = calibration(self.predictions.probabilities.ravel(), self.true.ravel())
        figures.save(figures.reliability(made, "probability of a class, %", "images that show it, %"), file)
        caption = (
            f"All classes of all images, in {BINS} steps of probability: a bar is the share that is there, the dot on it their "
            "mean probability; on the dashed line probabilities mean what they say. Below, how many each step has. The expected "
            f"calibration error, the mean distance from the line, is {100 * made.error:.1f} % (Guo et al. 2017)."
        )
        return page.section("Calibration", page.picture(file, "Reliability diagram", caption))

    def _worst_ranked(self, file: Path) -> Markup:
        predictions = self.predictions
        found = worst_ranked(self.true, predictions.probabilities)
        if not found:
            return page.section("Worst misses", page.paragraph("No mistakes: every class shown stands before all others."))
        captions = {}
        for image, index in found[:SHEET]:
            first = int(np.where(self.true[image], -1, predictions.probabilities[image]).argmax())
            captions[image] = f"is {predictions.caption(image, index)}\nnot {predictions.caption(image, first)}"
        predictions.save_sheet(file, captions, correct=False)
        caption = (
            f"{len(captions)} of {len(found):,} images with a class that stands behind one they do not show, first where it "
            "stands farthest back: that class and its probability; then the surest of those that are not there; below, the file."
        )
        return page.section("Worst misses", page.picture(file, "Worst misses", caption + predictions.looks))


THESE, OWN = "these same images", "the validation images of its training"
"""Words for the images that thresholds are chosen on: by default, and in the training of the model."""


def worst_ranked(true: np.ndarray, probabilities: np.ndarray) -> list[tuple[int, int]]:
    """Return images that rank a true class behind a false one, with their last true class; the worst ranks first."""
    last = np.where(true, probabilities, np.inf).argmin(axis=1)
    own = np.take_along_axis(probabilities, last[:, None], axis=1)
    ahead = probabilities > own
    missed = (ahead & ~true).any(axis=1) & true.any(axis=1)
    places = 1 + ahead.sum(axis=1)
    order = np.lexsort((own[:, 0], -places))
    return [(i, int(last[i])) for i in order.tolist() if missed[i]]


def average_precisions(true: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the average precision of each class (classes,), NaN for one without images; both arguments are (N, classes)."""
    shown = true.any(axis=0)
    precisions = np.full(true.shape[1], np.nan)
    if shown.any():
        precisions[shown] = average_precision_score(true[:, shown], probabilities[:, shown], average=None)
    return precisions
