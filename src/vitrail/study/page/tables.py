"""Tables of a report: scores by class, the data, and the cost of the model."""

import re
from dataclasses import dataclass

import numpy as np

from vitrail.data.items import Data
from vitrail.models.cost import Cost
from vitrail.study.page import page
from vitrail.study.page.page import Markup, Number

OPEN_CLASSES = 40
"""Maximum number of classes in a table that is not folded."""
PART = re.compile(r"(?:.+\.)?stages\.\d+|[^.]*")
"""Pattern that finds the part of the model in a layer's name."""


@dataclass(frozen=True)
class Score:
    """A score for each class, between 0 and 1; NaN where it is undefined."""

    name: str
    values: np.ndarray
    averaged: bool = True
    """True if the mean over classes is meaningful."""


def class_table(classes: list[str], images: np.ndarray, scores: list[Score]) -> Markup:
    """Return a table of all classes with their scores; the last score also has a bar, and its weakest classes are marked.

    A table of many classes is folded below a table of the weakest.
    """
    weak = weakest(scores[-1].values, images)
    names = [f"{score.name}, %" for score in scores]
    head = ("class", "images", *names, "")
    rows = [
        (name, Number(f"{images[i]:,}"), *(percent(s.values[i]) for s in scores), page.bar(np.nan_to_num(scores[-1].values[i])))
        for i, name in enumerate(classes)
    ]
    means = [percent(np.nanmean(s.values)) if s.averaged and np.isfinite(s.values).any() else Number("") for s in scores]
    total = ("mean over classes", Number(""), *means, Markup(""))
    table = page.table(head, rows, marked=weak, total=total)
    marked = f"Marked: weakest by {scores[-1].name}."
    if len(classes) <= OPEN_CLASSES:
        return Markup(table + page.note(marked)) if weak else table
    worst = page.table(head, [rows[i] for i in weak], total=total)
    said = f"The weakest of {len(classes):,} classes:" if weak else f"No class of {len(classes):,} is below 100 %."
    return Markup(page.paragraph(said) + worst + page.folded("all classes", table))


def weakest(values: np.ndarray, images: np.ndarray) -> list[int]:
    """Return up to ten classes with the lowest values, at most a third of all; classes without images or at 1 are skipped."""
    order = [i for i in np.argsort(values, kind="stable").tolist() if images[i] and values[i] < 1]
    return order[: min(10, max(1, len(values) // 3))]


def percent(value: float) -> Number:
    return Number("–" if np.isnan(value) else f"{100 * value:.1f}")


def count_table(classes: list[str], counts: dict[str, list[int]], *, counted: str = "images") -> Markup:
    """Return a table of the number of images by class and split, with a bar for the first split.

    The last row has the sums of ``counted``, which are labels if an image may have several.
    """
    splits = [split for split, numbers in counts.items() if sum(numbers)]
    most = max(counts[splits[0]])
    rows = [
        (Number(i), name, *(Number(f"{counts[s][i]:,}") for s in splits), page.bar(counts[splits[0]][i] / most))
        for i, name in enumerate(classes)
    ]
    total = ("", f"all {counted}", *(f"{sum(counts[s]):,}" for s in splits), "")
    table = page.table(("index", "class", *splits, ""), rows, total=total)
    return table if len(classes) <= OPEN_CLASSES else page.folded("per class and split", table)


def split_table(data: Data) -> Markup:
    """Return a table of the number of items in each split."""
    return page.table(("split", data.things), [(name, Number(f"{len(items):,}")) for name, items in data.splits.items()])


def cost_table(cost: Cost) -> Markup:
    """Return parameters and multiply-adds by part of the model; each stage is a part."""
    parts: dict[str, list[int]] = {}
    for layer in cost.layers:
        part = parts.setdefault(PART.findall(layer.name)[0], [0, 0])
        part[0] += layer.parameters
        part[1] += layer.macs
    rows = [(name, *_cost_cells(cost, *part)) for name, part in parts.items()]
    head = ("part", "parameters", "share", "multiply-adds", "share")
    return page.table(head, rows, total=("total", *_cost_cells(cost, cost.parameters, cost.macs)))


def _cost_cells(cost: Cost, parameters: int, macs: int) -> list[Number]:
    shares = (parameters / cost.parameters, macs / cost.macs)
    return [Number(n) for n in (f"{parameters:,}", f"{100 * shares[0]:.1f} %", f"{macs:,}", f"{100 * shares[1]:.1f} %")]


def duration(seconds: float) -> str:
    """Return a duration in words, such as ``2 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
