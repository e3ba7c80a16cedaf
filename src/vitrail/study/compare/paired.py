"""Two models on the same images: which of them is right where the other is wrong, and whether that may be chance."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from vitrail.tasks.answer_table import read_table

Answers = Mapping[tuple[str, str], bool]
"""Whether the answer is right, by the name of an image and its true label."""


@dataclass(frozen=True)
class Paired:
    """Two runs on the images that both were evaluated on."""

    first: str
    second: str
    images: int
    only_first: int
    """Images that the first alone has right."""
    only_second: int
    both: int = 0
    """Images that both have right."""
    left_out: tuple[int, int] = (0, 0)
    """Images of the first and of the second that the other was not evaluated on, or under another label."""

    @property
    def difference(self) -> float:
        """The first's share of right answers less the second's."""
        return (self.only_first - self.only_second) / self.images

    @property
    def p(self) -> float:
        """McNemar's exact test (1947): how probable so uneven a split of the images that tell them apart is by chance alone."""
        apart = self.only_first + self.only_second
        return float(binomtest(self.only_first, apart).pvalue) if apart else 1.0

    @property
    def note(self) -> str | None:
        """A sentence on the images that are left out and the scores on the others; None where none are."""
        if not any(self.left_out):
            return None
        counts = " and ".join(f"{self.images + more:,}" for more in self.left_out)
        first, second = (100 * (self.both + alone) / self.images for alone in (self.only_first, self.only_second))
        return (
            f"{self.first} and {self.second} were evaluated on {counts} images and are compared on the {self.images:,} that they "
            f"have in common under one label: {first:.2f} % and {second:.2f} % right"
        )

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "difference": self.difference, "p": self.p}


def answers_in(file: Path) -> Answers:
    """What ``predictions.csv`` of a run says; nothing where there is none, or names do not tell its images apart.

    Raises:
        DataError: it is no table of answers.
    """
    if not file.is_file():
        return {}
    head, *rows = read_table(file, "image", "correct")
    said = [dict(zip(head, row, strict=True)) for row in rows]
    found = {(row["image"], row.get("true_label") or row.get("true_labels") or ""): row["correct"] == "yes" for row in said}
    return found if len(found) == len(rows) else {}


def paired(runs: Sequence[tuple[str, Answers]]) -> list[Paired]:
    """Every two runs, by name, that have answers to some of the same images."""
    return [
        compared(first, second)
        for place, first in enumerate(runs)
        for second in runs[place + 1 :]
        if first[1].keys() & second[1].keys()
    ]


def compared(first: tuple[str, Answers], second: tuple[str, Answers]) -> Paired:
    """Two runs with answers to some of the same images."""
    both = [(right, second[1][image]) for image, right in first[1].items() if image in second[1]]
    only_first, only_second, right = (both.count(pair) for pair in ((True, False), (False, True), (True, True)))
    left_out = len(first[1]) - len(both), len(second[1]) - len(both)
    return Paired(first[0], second[0], len(both), only_first, only_second, right, left_out)
