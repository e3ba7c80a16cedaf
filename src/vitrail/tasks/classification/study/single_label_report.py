"""The part of a report for images of one class each: confusion, classes, calibration, mistakes and least sure hits."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.metrics import classification_report, confusion_matrix, precision_recall_fscore_support

from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup, Number
from vitrail.study.page.tables import Score, class_table
from vitrail.study.quality.calibration import BINS, calibration, wilson_interval
from vitrail.tasks.classification.study.predictions import SHEET, Predictions

PAIRS = 10
ACCEPTED_SHARES = (1.0, 0.99, 0.95, 0.9, 0.8)
REJECTION = (
    "A guess is accepted where its probability reaches the threshold. Coverage is the share of these images that is accepted; "
    "as it falls, fewer of the accepted guesses should be wrong. All these images show known classes: how many others are "
    "rejected cannot be seen here. A softmax shares all probability among the known classes, so an image of something else "
    "may be sure."
)
SCANTY, MOST_DRAWN = 200, 1000
"""Largest number of classes of a confusion matrix: with fewer images than classes, and in any case."""


class SingleLabel:
    """Scores and sections for images of one class each; ``chosen_on`` names the images for the threshold of ``--reject``."""

    def __init__(self, predictions: Predictions, chosen_on: str = ""):
        self.predictions, self.chosen_on = predictions, chosen_on
        self.labels = np.array([item.target for item in predictions.items])
        self.guesses = predictions.probabilities.argmax(axis=1)
        self.sureness = predictions.probabilities.max(axis=1)
        self.correct = self.guesses == self.labels
        self.calibration = calibration(self.sureness, self.correct)

    @property
    def text(self) -> str:
        """scikit-learn's classification report."""
        names = self.predictions.classes
        return classification_report(
            self.labels, self.guesses, labels=range(len(names)), target_names=names, digits=4, zero_division=0
        )

    def cards(self) -> Iterator[tuple[str, str]]:
        scores = self.predictions.scores
        low, high = wilson_interval(int(self.correct.sum()), len(self.correct))
        what = f"top-1 accuracy on {self.predictions.images}; 95 % interval {100 * low:.1f} to {100 * high:.1f} %"
        if "top5" in scores:
            what += f"; top-5 {100 * scores['top5']:.2f} %"
        yield f"{100 * scores['top1']:.2f} %", what
        yield f"{scores['loss']:.3f}", "cross-entropy"
        yield f"{100 * self.calibration.error:.1f} %", "expected calibration error"

    def sections(self, plots: Path) -> Iterator[Markup]:
        yield self._confusion(plots / "confusion.png")
        yield self._per_class()
        yield self._calibration(plots / "calibration.png")
        yield self._rejection()
        yield self._mistakes(plots / "mistakes.png")
        yield self._unsure(plots / "unsure.png")

    def _confusion(self, file: Path) -> Markup:
        names, contents = self.predictions.classes, []
        if 1 < len(names) <= min(max(SCANTY, len(self.labels)), MOST_DRAWN):
            matrix = confusion_matrix(self.labels, self.guesses, labels=range(len(names)))
            figures.save(figures.confusion(matrix, names), file)
            many = len(names) > figures.MAX_NAMED_CLASSES
            caption = "A row is a true class, a column a guess; the diagonal is correct. Colour is the share of the row"
            caption += ", its square root; classes have their index." if many else "."
            contents.append(page.picture(file, "Confusion matrix", caption))
        if len(names) > figures.MAX_NUMBERED_CLASSES and not self.correct.all():
            images = np.bincount(self.labels)
            rows = [
                (names[true], names[guess], Number(f"{count:,}"), Number(f"{100 * count / images[true]:.0f} %"))
                for true, guess, count in most_confused(self.labels, self.guesses)[:PAIRS]
            ]
            contents += [
                page.paragraph("The classes that are taken for each other most often:"),
                page.table(("true", "guessed", "images", "of the class"), rows),
            ]
        return page.section("Confusion", *(contents or [page.paragraph("No class is taken for another.")]))

    def _per_class(self) -> Markup:
        names = self.predictions.classes
        precision, recall, f1, images = precision_recall_fscore_support(
            self.labels, self.guesses, labels=range(len(names)), zero_division=0
        )
        named = {"precision": precision, "recall": recall, "F1": f1}
        scores = [Score(name, np.where(images, values, np.nan)) for name, values in named.items()]
        return page.section("Classes", class_table(names, images, scores))

    def _calibration(self, file: Path) -> Markup:
        figures.save(figures.reliability(self.calibration, "probability of the guess, %", "correct guesses, %"), file)
        caption = (
            f"A bar is the share of correct guesses at a probability, in {BINS} steps; the dot is their mean "
            "probability. On the dashed line a model is as sure as it is correct. Below, how many guesses each step has. The "
            "mean distance from the line is the expected calibration error: "
            f"{100 * self.calibration.error:.1f} % (Guo et al. 2017)."
        )
        return page.section(
            "Calibration", page.paragraph(self.calibration.verdict), page.picture(file, "Reliability diagram", caption)
        )

    def _rejection(self) -> Markup:
        """Return the section with the fraction of images that each threshold accepts, and how many of these are wrong."""
        order = np.sort(self.sureness)[::-1]
        bounds = {f"{share:.0%} of these": order[math.ceil(share * len(order)) - 1] for share in ACCEPTED_SHARES}
        name = f"--reject, from {self.chosen_on}" if self.chosen_on else "--reject"
        own = {name: self.predictions.thresholds[0]} if self.predictions.thresholds else {}
        rows = []
        for name, bound in {**own, **bounds}.items():
            accepted = self.sureness >= bound
            wrong = f"{100 * (1 - self.correct[accepted].mean()):.2f}" if accepted.any() else "–"
            rows.append((name, Number(f"{100 * bound:.1f}"), Number(f"{100 * accepted.mean():.1f}"), Number(wrong)))
        head = ("accepted", "threshold, %", "coverage, %", "wrong of the accepted, %")
        return page.section("Rejection", page.paragraph(REJECTION), page.table(head, rows))

    def _mistakes(self, file: Path) -> Markup:
        predictions, wrong = self.predictions, int((~self.correct).sum())
        if not wrong:
            return page.section("Surest mistakes", page.paragraph("No mistakes."))
        captions = {
            image: f"{predictions.caption(image, self.guesses[image])}\nis {predictions.caption(image, self.labels[image])}"
            for image in surest_mistakes(self.correct, self.sureness)[:SHEET]
        }
        predictions.save_sheet(file, captions, correct=False)
        caption = (
            f"{len(captions)} of {wrong:,} mistake{'s' if wrong > 1 else ''}, the surest first: above, the guess and its "
            "probability; then what it is and the probability that this was given; below, the file."
        )
        return page.section("Surest mistakes", page.picture(file, "Surest mistakes", caption + predictions.looks))

    def _unsure(self, file: Path) -> Markup:
        predictions, hits = self.predictions, int(self.correct.sum())
        if not hits:
            return page.section("Least sure hits", page.paragraph("No hits."))
        captions = {
            image: "\nor ".join(predictions.caption(image, index) for index in likeliest(predictions.probabilities[image]))
            for image in least_sure_hits(self.correct, self.sureness)[:SHEET]
        }
        predictions.save_sheet(file, captions, correct=True)
        caption = (
            f"{len(captions)} of {hits:,} hit{'s' if hits > 1 else ''}, the least sure first: the correct guess, the second "
            "best; below, the file."
        )
        return page.section("Least sure hits", page.picture(file, "Least sure hits", caption))


def most_confused(labels: np.ndarray, guesses: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (true class, predicted class, number of images) of all confused pairs, the most frequent first."""
    wrong = labels != guesses
    pairs, counts = np.unique(np.stack([labels[wrong], guesses[wrong]], axis=1), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(int(true), int(guess), int(count)) for (true, guess), count in zip(pairs[order], counts[order], strict=True)]


def surest_mistakes(correct: np.ndarray, sureness: np.ndarray) -> list[int]:
    """Return the indices of wrong predictions, the highest probability first."""
    return [i for i in np.argsort(-sureness, kind="stable").tolist() if not correct[i]]


def least_sure_hits(correct: np.ndarray, sureness: np.ndarray) -> list[int]:
    """Return the indices of correct predictions, the lowest probability first."""
    return [i for i in np.argsort(sureness, kind="stable").tolist() if correct[i]]


def likeliest(probabilities: np.ndarray) -> list[int]:
    """Return the indices of the two most probable classes, or of the only class."""
    return np.argsort(-probabilities, kind="stable")[:2].tolist()
