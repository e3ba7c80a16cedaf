"""Results of a sweep as a table and a figure: the effect of a setting on the score, with its uncertainty."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from vitrail.errors import ConfigError
from vitrail.files import write_json, write_text
from vitrail.study.compare.comparison import Compared, shown
from vitrail.study.compare.comparison_page import curves, run_table
from vitrail.study.page import figures, page
from vitrail.study.page import label_placement as labels
from vitrail.study.page.label_placement import Label
from vitrail.study.page.page import Number
from vitrail.study.page.tables import duration
from vitrail.tasks.metrics import Metric

SEED, MODEL = "training.seed", "model.name"
OPERATIONS = "operations"
"""Name of the x-axis for operations of training instead of a setting (the paper, figure 5)."""
COUNTED = (
    "Operations count forward and backward, six for every multiply-add of a training image; growing images, dropped patches "
    "and frozen weights need fewer."
)
Runs = Sequence[tuple[dict[str, Any], Compared]]
"""Runs, each with its values of the varied settings."""


@dataclass(frozen=True)
class Combination:
    """The runs that differ only in their seed."""

    values: dict[str, Any]
    """Values of the varied settings, by dotted name, without the seed."""
    runs: list[Compared]

    @property
    def scored(self) -> list[Compared]:
        return [run for run in self.runs if run.score is not None]

    @property
    def scores(self) -> list[float]:
        return [run.score for run in self.runs if run.score is not None]

    @property
    def metric(self) -> Metric:
        return self.runs[0].metric if not self.scored else self.scored[0].metric

    @property
    def mean(self) -> float:
        """Mean score; NaN if no run has one."""
        return self.of("score")

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of a single run, or mean ± standard deviation over several seeds; None if unknown."""
        if len(self.runs) == 1:
            return self.runs[0].interval
        if len(self.scores) < 2:
            return None
        spread = float(np.std(self.scores, ddof=1))
        return self.mean - spread, self.mean + spread

    def of(self, attribute: str) -> float:
        """Return the mean of an attribute over the runs with a score; NaN if there are none."""
        return float(np.mean([getattr(run, attribute) for run in self.scored])) if self.scored else math.nan


Point = tuple[float, Combination]
"""A combination with its position x."""


def combinations(runs: Runs) -> list[Combination]:
    """Group the runs that differ only in their seed; the order stays."""
    found: dict[str, Combination] = {}
    for values, run in runs:
        without_seed = {name: value for name, value in values.items() if name != SEED}
        found.setdefault(repr(without_seed), Combination(without_seed, [])).runs.append(run)
    return list(found.values())


def score_axis(against: str | None, axes: Mapping[str, Sequence[Any]], dotted_name: Callable[[str], str]) -> str | None:
    """Return the dotted name of the x-axis; raises `ConfigError` for a setting whose values are not numbers."""
    if against in (None, OPERATIONS):
        return against
    dotted = dotted_name(str(against))
    numbers = [n for n, values in axes.items() if n != SEED and all(type(value) in (int, float) for value in values)]
    if dotted not in numbers:
        known = ", ".join([OPERATIONS, *numbers])
        raise ConfigError(f"the sweep does not vary {against!r} by numbers", where="against", hint=f"known: {known}")
    return dotted


def table(found: Sequence[Combination]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: the varied settings, the score with its interval, and the costs."""
    names = list(found[0].values)
    several = any(len(one.runs) > 1 for one in found)
    head = [*names, "runs", "score", "± sd" if several else "95 % interval", "training", "parameters", "multiply-adds"]
    return head, [[*(shown(one.values[name]) for name in names), *_cells(one, several=several)] for one in found]


def _cells(one: Combination, *, several: bool) -> list[str]:
    if not one.scored:
        return ["0", "–", "–", "–", "–", "–"]
    sure = "–"
    if one.interval is not None:
        low, high = one.interval
        spread, sides = (high - low) / 2, (one.metric.factor * side for side in one.interval)
        sure = one.metric.shown(spread).removesuffix(" %") if several else "{:.1f} to {:.1f}".format(*sides)
    return [
        str(len(one.scores)),
        one.metric.shown(one.mean),
        sure,
        duration(one.of("seconds")),
        f"{one.of('parameters') / 1e6:,.2f} M",
        f"{one.of('macs') / 1e6:,.1f} M",
    ]


def numeric(found: Sequence[Combination]) -> list[str]:
    """Return the varied settings whose values are numbers."""
    return [name for name in found[0].values if all(type(one.values[name]) in (int, float) for one in found)]


@figures.styled
def picture(found: Sequence[Combination], against: str | None = None) -> Figure:
    """Draw scores with their intervals, by a numeric setting or by ``operations``; without either, side by side.

    Other varied settings separate the lines; with operations only settings that are not numbers do. With operations, points
    are labelled with model names and coloured by family (ViT, hybrid, …). A line connects the models of a family, or, if each
    model has several points, the points of each model.
    """
    against = against or next(iter(numeric(found)), None)
    figure, axes = figures.canvas(8, 4.8)
    axes.margins(x=0.08)
    if against is None:
        _side_by_side(axes, found)
    else:
        names = _against(axes, found, against)
        if len(axes.get_legend_handles_labels()[1]) > (0 if names else 1):
            figure.legend(loc="outside upper center", ncols=5 if names else 2, frameon=False, fontsize=9)
        labels.place(figure, axes, names)
    axes.grid(alpha=0.25)
    return figure


def _side_by_side(axes: Axes, found: Sequence[Combination]) -> None:
    names = [", ".join(shown(value) for value in one.values.values()) or "all" for one in found]
    for place, one in enumerate(found):
        if one.scored:
            axes.errorbar([one.metric.factor * one.mean], [place], xerr=_away(one), fmt="o", capsize=3, color=figures.BLUE)
            _singles(axes, one, place, figures.BLUE, upright=False)
    axes.set_yticks(range(len(found)), names, parse_math=False)
    axes.set(xlabel=_label(found), ylabel=", ".join(found[0].values), ylim=(len(found) - 0.5, -0.5))


def _singles(axes: Axes, one: Combination, place: float, color: str, *, upright: bool = True) -> None:
    """Draw small circles for the single runs behind a mean."""
    if len(one.scores) > 1:
        scores, places = [one.metric.factor * score for score in one.scores], [place] * len(one.scores)
        style: Any = {"color": color, "markerfacecolor": "white", "markersize": 4, "zorder": 3}
        axes.plot(*((places, scores) if upright else (scores, places)), "o", **style)


def _away(one: Combination) -> list[list[float]] | None:
    if one.interval is None:
        return None
    low, high = one.interval
    return [[max(0.0, one.metric.factor * way)] for way in (one.mean - low, high - one.mean)]


def _label(found: Sequence[Combination]) -> str:
    return next((one.metric.label for one in found if one.scored), "score")


def _against(axes: Axes, found: Sequence[Combination], against: str) -> list[Label]:
    """Draw the lines, and return the labels of models to place beside their points."""
    numbers = numeric(found) if against == OPERATIONS else [against]
    families = against == OPERATIONS and MODEL in found[0].values
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for one in found:
        if one.scored:
            rest = {name: value for name, value in one.values.items() if name not in numbers and not (families and name == MODEL)}
            words = [f"{name.rpartition('.')[2]} {shown(value)}" for name, value in rest.items()]
            x = one.of(OPERATIONS) if against == OPERATIONS else float(one.values[against])
            groups[", ".join([one.scored[0].family, *words] if families else words), repr(rest)].append((x, one))
    names: list[Label] = []
    for number, ((label, _), points) in enumerate(groups.items()):
        color, marker = (row[number % len(row)] for row in (figures.COLORS, figures.MARKERS))
        points.sort(key=lambda point: point[0])
        for line in _by_model(points) if families else [points]:
            _draw(axes, line, color=color, marker=marker, label=figures.legend_name(label) if label else None)
            label = ""
            alone = line[0][1].values.get(MODEL) == line[-1][1].values.get(MODEL)
            last = [(x, one.metric.factor * one.mean, str(one.values[MODEL])) for x, one in line] if families else []
            names += [Label(*point, color) for point in (last[-1:] if alone else last)]
    _scale(axes, sorted({x for points in groups.values() for x, _ in points}), against)
    axes.set(xlabel="operations of training" if against == OPERATIONS else against, ylabel=_label(found))
    return names


def _by_model(points: Sequence[Point]) -> list[list[Point]]:
    """Split a family into lines: one through all its models, or one per model if a model has several points."""
    lines: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        lines[str(point[1].values[MODEL])].append(point)
    return list(lines.values()) if any(len(line) > 1 for line in lines.values()) else [list(points)]


def _draw(axes: Axes, line: Sequence[Point], **style: Any) -> None:
    places, scores = [x for x, _ in line], [one.metric.factor * one.mean for _, one in line]
    axes.plot(places, scores, markersize=6, **style)
    for x, score, (_, one) in zip(places, scores, line, strict=True):
        if (away := _away(one)) is not None:
            axes.errorbar([x], [score], yerr=away, fmt="none", capsize=3, color=style["color"])
        _singles(axes, one, x, style["color"])


def _scale(axes: Axes, places: Sequence[float], against: str) -> None:
    """Set a logarithmic x-axis: always for operations, as in the paper; for other numbers if they span a factor of 8."""
    if not places or places[0] <= 0:
        return
    if against == OPERATIONS:
        axes.set_xscale("log")
    elif places[-1] >= 8 * places[0]:
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{x:g}" for x in places])
        axes.xaxis.set_minor_locator(NullLocator())


def document(runs: Runs) -> list[dict[str, Any]]:
    """Return the content of ``results.json``."""
    return [{"settings": values, **run.to_dict()} for values, run in runs]


def write_sweep(folder: Path, runs: Runs, *, title: str, against: str | None) -> None:
    """Write ``report.html``, ``sweep.png``, ``curves.png``, ``results.csv`` and ``results.json`` to an existing folder."""
    found, every = combinations(runs), [run for _, run in runs]
    figures.save(picture(found, against), folder / "sweep.png")
    figures.save(curves(every), folder / "curves.png")
    head, rows = table(found)
    settings = len(found[0].values)
    caption = f"Scores of the best model of each run{_bars(found, several='± sd' in head)}."
    caption += f" {COUNTED}" if against == OPERATIONS else ""
    sections = [
        page.section(
            "Result",
            page.picture(folder / "sweep.png", "Scores", caption),
            page.table(head, [[*row[:settings], *map(Number, row[settings:])] for row in rows]),
        ),
        page.section(
            "Runs", run_table(every, folder), page.picture(folder / "curves.png", "Curves", "Of the validation images.")
        ),
    ]
    write_text(folder / "report.html", page.page(title, sections))
    write_text(folder / "results.csv", _sheet(found))
    write_json(folder / "results.json", document(runs))


def _bars(found: Sequence[Combination], *, several: bool) -> str:
    """Return the meaning of the error bars; empty if there are none."""
    if all(one.interval is None for one in found):
        return ""
    if several:
        return "; bars are the standard deviation over seeds, small circles single runs"
    return "; bars are 95 % intervals for the evaluated images (Wilson 1927)"


def _sheet(found: Sequence[Combination]) -> str:
    """Return the table as CSV with plain numbers; unknown ones are empty."""
    names, numbers = list(found[0].values), ("seconds", "parameters", "macs", OPERATIONS)
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow([*names, "runs", "score", "low", "high", *numbers])
    for one in found:
        known = [one.mean, *(one.interval or (math.nan, math.nan)), *(one.of(name) for name in numbers)]
        writer.writerow([*one.values.values(), len(one.scores), *("" if math.isnan(value) else value for value in known)])
    return sheet.getvalue()
