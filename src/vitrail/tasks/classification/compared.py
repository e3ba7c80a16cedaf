"""Comparison of two classifiers image by image: how often only one of them is right, and whether that may be chance."""

import filecmp
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from vitrail.data.loading.sampler import spread
from vitrail.study.compare.comparison import Compared, TaskComparison, columns, same_data
from vitrail.study.page import page
from vitrail.study.page.page import Markup, Number
from vitrail.tasks.answer_table import read_table

Answers = Mapping[tuple[str, str], bool]
"""Whether a prediction is right, by (name of the image, true label)."""
PREDICTIONS = "predictions.csv"
MOST_NOTES, COMPARED_FILES = 8, 200
"""Limits: notes on pairs of runs, and files of two data sets that are compared byte by byte."""
HEAD = ("run", "against", "difference, points", "it alone right", "the other alone", "images", "p")
PAIRED = (
    "Predictions for the same images, which tell more than two intervals side by side. p is McNemar's exact test: how probable "
    "so uneven a split of the images that one alone has right is where neither is better. Of many pairs some are below 0.05 by "
    "chance."
)


@dataclass(frozen=True)
class Paired:
    """Two runs, compared on the images that both were evaluated on."""

    first: str
    second: str
    images: int
    only_first: int
    """Number of images that only the first predicts correctly."""
    only_second: int
    both: int = 0
    """Number of images that both predict correctly."""
    left_out: tuple[int, int] = (0, 0)
    """Number of images of the first and of the second run that the other lacks, or has with another label."""

    @classmethod
    def of(cls, first: str, answers: Answers, second: str, others: Answers) -> "Paired":
        """Compare two runs, given by name and `Answers`, on their common images; there must be at least one."""
        pairs = [(right, others[image]) for image, right in answers.items() if image in others]
        only_first, only_second, both = (pairs.count(pair) for pair in ((True, False), (False, True), (True, True)))
        left_out = len(answers) - len(pairs), len(others) - len(pairs)
        return cls(first, second, len(pairs), only_first, only_second, both, left_out)

    @property
    def difference(self) -> float:
        """Accuracy of the first run minus that of the second."""
        return (self.only_first - self.only_second) / self.images

    @property
    def p(self) -> float:
        """The p-value of McNemar's exact test (1947), on the images that exactly one run predicts correctly."""
        apart = self.only_first + self.only_second
        return float(binomtest(self.only_first, apart).pvalue) if apart else 1.0

    @property
    def note(self) -> str | None:
        """A sentence about images that are left out; None if there are none."""
        if not any(self.left_out):
            return None
        counts = " and ".join(f"{self.images + more:,}" for more in self.left_out)
        first, second = (100 * (self.both + alone) / self.images for alone in (self.only_first, self.only_second))
        return (
            f"{self.first} and {self.second} were evaluated on {counts} images and are compared on the {self.images:,} that they "
            f"have in common under one label: {first:.2f} % and {second:.2f} % right"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``comparison.json``."""
        return {**asdict(self), "difference": self.difference, "p": self.p}

    def row(self) -> tuple[str, ...]:
        """Return the cells for the columns of `HEAD`."""
        p = f"{self.p:.2g}" if self.p >= 0.0001 else "< 0.0001"
        counts = (f"{count:,}" for count in (self.only_first, self.only_second, self.images))
        return (self.first, self.second, f"{100 * self.difference:+.2f}", *counts, p)


def answers_in(file: Path) -> Answers:
    """Return the content of a run's ``predictions.csv``; empty without this file, or if several rows have one name and label.

    Raises:
        DataError: the file is not a table of predictions.
    """
    if not file.is_file():
        return {}
    head, *rows = read_table(file, "image", "correct")
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    answers = {(row["image"], row.get("true_label") or row.get("true_labels") or ""): row["correct"] == "yes" for row in cells}
    return answers if len(answers) == len(rows) else {}


def pairs_of(runs: Sequence[Compared]) -> Iterator[Paired | str]:
    """Yield the comparison of every two runs that have predictions, or the reason why they cannot be compared."""
    with_answers = [(run, answers) for run in runs if (answers := _answers_of(run))]
    for (first, answers), (second, others) in combinations(with_answers, 2):
        names = f"{first.name} and {second.name} are not compared image by image: "
        if not (common := answers.keys() & others.keys()):
            yield f"{names}none of their {len(answers):,} and {len(others):,} images has the same name and label"
        elif not same_data(first, second) and not _same_files(first, second, sorted(name for name, _ in common)):
            yield f"{names}the same names may be other images in {first.source} and {second.source}"
        else:
            yield Paired.of(first.name, answers, second.name, others)


def _answers_of(run: Compared) -> Answers:
    return answers_in(run.folder / PREDICTIONS) if run.folder is not None and run.task == "classification" else {}


def _same_files(first: Compared, second: Compared, names: Sequence[str]) -> bool:
    """Return whether the files with these names are equal in the data of both runs; at most `COMPARED_FILES` are compared."""
    chosen = [names[place] for place in spread(len(names), COMPARED_FILES)]
    try:
        return all(filecmp.cmp(first.data_folder / name, second.data_folder / name, shallow=False) for name in chosen)
    except (OSError, ValueError):
        return False


class LabelComparison(TaskComparison):
    """The comparison of classifiers, pair by pair and image by image, with notes on images that are left out."""

    def sections(self, runs: Sequence[Compared], folder: Path) -> list[Markup]:
        pairs, notes = self._found(runs)
        rows = [(first, second, *map(Number, cells)) for first, second, *cells in (pair.row() for pair in pairs)]
        parts = [page.table(HEAD, rows), page.note(PAIRED)] if rows else []
        parts += [page.paragraph(f"{note}.") for note in notes]
        return [page.section("Paired differences", *parts)] if parts else []

    def texts(self, runs: Sequence[Compared]) -> list[str]:
        pairs, notes = self._found(runs)
        texts = [columns([HEAD, *(pair.row() for pair in pairs)])] if pairs else []
        return texts + (["\n".join(f"note: {note}" for note in notes)] if notes else [])

    def document(self, runs: Sequence[Compared]) -> dict[str, Any]:
        pairs, notes = self._found(runs)
        return {"paired": [pair.to_dict() for pair in pairs], "notes": notes}

    def same_items(self, runs: Sequence[Compared]) -> bool | None:
        answers = [_answers_of(run).keys() for run in runs]
        return all(images == answers[0] for images in answers) if all(answers) else None

    def _found(self, runs: Sequence[Compared]) -> tuple[list[Paired], list[str]]:
        """Return the pairs, and at most `MOST_NOTES` notes with a count of the others."""
        pairs = list(pairs_of(runs))
        notes = [note for pair in pairs if (note := pair.note if isinstance(pair, Paired) else pair)]
        more = [f"and {len(notes) - MOST_NOTES:,} more pairs of runs"] if len(notes) > MOST_NOTES else []
        return [pair for pair in pairs if isinstance(pair, Paired)], notes[:MOST_NOTES] + more


COMPARISON = LabelComparison()
