"""A grid of runs as one table and one picture: what a setting does to the score, and how sure that is."""

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from vitrail.files import write_json, write_text
from vitrail.study import figures, page
from vitrail.study.comparison import COLORS, Compared, curves, run_table, shown
from vitrail.study.page import Number
from vitrail.study.tables import duration

SEED = "training.seed"
OPERATIONS = "operations"
"""In place of a setting: what training computes (the paper, figure 5)."""
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """The runs that differ in nothing but their seed."""

    values: dict[str, Any]
    """The settings of the grid, by dotted name, without the seed."""
    runs: list[Compared]

    @property
    def scores(self) -> list[float]:
        """Of the runs that have one."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def mean(self) -> float:
        """Of the scores; NaN where there is none."""
        return float(np.mean(self.scores)) if self.scores else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Of one run 95 % for its accuracy; of several the mean less and more their standard deviation."""
        if len(self.scores) > 1:
            spread = float(np.std(self.scores, ddof=1))
            return self.mean - spread, self.mean + spread
        found = next((run.interval for run in self.runs if run.interval is not None), None)
        return found or (self.mean, self.mean)

    def of(self, attribute: str) -> float:
        """The mean of a number of the runs."""
        return float(np.mean([getattr(run, attribute) for run in self.runs]))


def cells(runs: Sequence[tuple[dict[str, Any], Compared]]) -> list[Cell]:
    """Runs with their settings of the grid, those of one cell together, in the order of the grid."""
    found: dict[str, tuple[dict[str, Any], list[Compared]]] = {}
    for values, run in runs:
        without_seed = {name: value for name, value in values.items() if name != SEED}
        found.setdefault(repr(without_seed), (without_seed, []))[1].append(run)
    return [Cell(values, together) for values, together in found.values()]


def table(found: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: the settings of the grid, the score with its interval, and what it took."""
    several = any(len(cell.runs) > 1 for cell in found)
    names = list(found[0].values) if found else []
    head = [*names, "runs", "score, %", "± sd" if several else "95 % interval", "training", "parameters", "multiply-adds"]
    rows = []
    for cell in found:
        low, high = (100 * side for side in cell.interval)
        sure = f"{(high - low) / 2:.2f}" if several else f"{low:.1f} to {high:.1f}"
        rows.append(
            [
                *(shown(cell.values[name]) for name in names),
                str(len(cell.scores)),
                f"{100 * cell.mean:.2f}" if cell.scores else "–",
                sure if cell.scores else "–",
                duration(cell.of("seconds")),
                f"{cell.of('parameters') / 1e6:,.2f} M",
                f"{cell.of('macs') / 1e6:,.1f} M",
            ]
        )
    return head, rows


def numeric(found: Sequence[Cell]) -> list[str]:
    """Settings of the grid whose values are numbers."""
    names = found[0].values if found else {}
    return [name for name in names if all(type(cell.values[name]) in (int, float) for cell in found)]


def picture(found: Sequence[Cell], against: str | None = None) -> Figure:
    """Scores with their intervals against a setting of numbers, or against ``operations``; else side by side.

    The other settings of the grid tell lines from each other.
    """
    against = against or next(iter(numeric(found)), None)
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        if against is None:
            _side_by_side(axes, found)
        else:
            _against(axes, found, against)
            if len(axes.get_legend_handles_labels()[1]) > 1:
                figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
        axes.grid(alpha=0.25)
    return figure


def _side_by_side(axes: Any, found: Sequence[Cell]) -> None:
    names = [", ".join(shown(value) for value in cell.values.values()) or "all" for cell in found]
    places = range(len(found))
    for place, cell in zip(places, found, strict=True):
        _point(axes, [100 * cell.mean], [place], cell.interval, horizontal=True, color=COLORS[0])
    axes.set_yticks(places, names, parse_math=False)
    axes.set(xlabel="score, %", ylim=(len(found) - 0.5, -0.5))


def _point(axes: Any, x: list[float], y: list[float], interval: tuple[float, float], *, horizontal: bool, color: str) -> None:
    value = x[0] if horizontal else y[0]
    away = [[max(0.0, value - 100 * interval[0])], [max(0.0, 100 * interval[1] - value)]]
    axes.errorbar(x, y, **{"xerr" if horizontal else "yerr": away}, fmt="o", capsize=3, color=color)


def _against(axes: Any, found: Sequence[Cell], against: str) -> None:
    lines: Mapping[Values, list[Cell]] = defaultdict(list)
    for cell in found:
        lines[tuple((name, shown(value)) for name, value in cell.values.items() if name != against)].append(cell)
    if against == OPERATIONS:  # what is computed is what tells all cells apart; models are lines
        lines = defaultdict(list)
        for cell in found:
            lines[(("model.name", shown(cell.values.get("model.name"))),)].append(cell)
    every = []
    for (named, line), color in zip(lines.items(), (COLORS * (1 + len(lines) // len(COLORS))), strict=False):
        place = {id(cell): cell.of(OPERATIONS) if against == OPERATIONS else float(cell.values[against]) for cell in line}
        line.sort(key=lambda cell: place[id(cell)])
        x = [place[id(cell)] for cell in line]
        every += x
        axes.plot(
            x,
            [100 * cell.mean for cell in line],
            color=color,
            label=", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in named),
        )
        for cell in line:
            _point(axes, [place[id(cell)]], [100 * cell.mean], cell.interval, horizontal=False, color=color)
    if min(every) > 0 and max(every) >= 8 * min(every):
        axes.set_xscale("log")
        if against != OPERATIONS:
            axes.set_xticks(sorted(set(every)), [f"{value:g}" for value in sorted(set(every))], minor=False)
            axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="operations of training" if against == OPERATIONS else against, ylabel="score, %")


def write_sweep(folder: Path, runs: Sequence[tuple[dict[str, Any], Compared]], *, title: str, against: str | None) -> None:
    """Write ``report.html``, ``sweep.png``, ``curves.png``, ``results.csv`` and ``results.json`` to a folder that exists."""
    found, every = cells(runs), [run for _, run in runs]
    figures.save(picture(found, against), folder / "sweep.png")
    figures.save(curves(every), folder / "curves.png")
    head, rows = table(found)
    several, settings = any(len(cell.runs) > 1 for cell in found), len(found[0].values)
    bars = "the standard deviation over seeds" if several else "95 % intervals for the images that were tried (Wilson 1927)"
    sections = [
        page.section(
            "Result",
            page.picture(folder / "sweep.png", "Scores", f"Scores of the best model of each run; bars are {bars}."),
            page.table(head, [[*row[:settings], *map(Number, row[settings:])] for row in rows]),
        ),
        page.section("Runs", run_table(every), page.picture(folder / "curves.png", "Curves", "Of the validation images.")),
    ]
    write_text(folder / "report.html", page.page(title, sections))
    sheet = io.StringIO()
    csv.writer(sheet, lineterminator="\n").writerows([head, *rows])
    write_text(folder / "results.csv", sheet.getvalue())
    write_json(folder / "results.json", [{"settings": values, **run.to_dict()} for values, run in runs])
