"""The page of a comparison: a table with the best of every column marked, links to reports, and curves."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitrail.files import write_json, write_text
from vitrail.study.compare.comparison import (
    HEAD,
    Compared,
    count_of,
    document,
    head_of,
    same_items,
    shown,
    table,
    task_comparisons,
)
from vitrail.study.page import figures, page
from vitrail.study.page.page import Best, Markup, Number
from vitrail.tasks.metrics import main_metric


def write_comparison(folder: Path, runs: Sequence[Compared]) -> None:
    """Write ``comparison.json``, images and ``report.html`` to an existing folder."""
    figures.save(curves(runs), folder / "curves.png")
    caption = "Validation metrics by epoch and by training time; one line per run."
    content = document(runs)
    rows = [(name, *map(shown, values)) for name, values in content["differences"].items()]
    settings = (
        page.table(("setting", *(run.name for run in runs)), rows) if rows else page.paragraph("All settings are the same.")
    )
    sections = [
        page.section("Runs", run_table(runs, folder), page.note("The best value of each column is highlighted.")),
        page.section("Curves", page.picture(folder / "curves.png", "Curves of all runs", caption)),
        *(section for task in task_comparisons(runs) for section in task.sections(runs, folder)),
        page.section("Settings that differ", settings),
    ]
    write_text(folder / "report.html", page.page(f"{len(runs)} runs compared", sections))
    write_json(folder / "comparison.json", content)


def run_table(runs: Sequence[Compared], folder: Path) -> Markup:
    """Return the `table` as HTML for a page in ``folder``: runs are linked to their reports, best values are marked."""
    listed = table(runs)
    marks = {HEAD.index(name): best(values, [row[HEAD.index(name)] for row in listed]) for name, values in _ranked(runs).items()}
    rows = []
    for run, (name, *cells) in zip(runs, listed, strict=True):
        numbers = [Best(cell) if cell == marks.get(column) else Number(cell) for column, cell in enumerate(cells, 1)]
        rows.append((_linked(name, run, folder), *numbers))
    return page.table(head_of(runs), rows)


def _ranked(runs: Sequence[Compared]) -> dict[str, list[float]]:
    """Return the values of the columns of `HEAD` that have a best, so that higher is better; NaN for unknown values."""
    ranked = {"images/s": [run.rate or math.nan for run in runs]}
    measured = [run for run in runs if run.scores]
    alike = len({(run.metric, run.split, count_of(run.scores)) for run in measured}) == 1
    if alike and same_items(measured):  # scores on different images are not comparable
        ranked["score"] = [
            math.nan if run.score is None else run.score * (1 if run.metric.higher_is_better else -1) for run in runs
        ]
    costs = {"training": "seconds", "parameters": "parameters", "multiply-adds": "macs"}
    return ranked | {name: [-getattr(run, field) or math.nan for run in runs] for name, field in costs.items()}


def best(values: Sequence[float], shown: Sequence[str]) -> str | None:
    """Return the text of the highest value; None if all texts are equal."""
    known = [(value, words) for value, words in zip(values, shown, strict=True) if not math.isnan(value)]
    return max(known)[1] if len({words for _, words in known}) > 1 else None


def _linked(name: str, run: Compared, folder: Path) -> str:
    report = None if run.folder is None else run.folder / "report.html"
    if report is None or not report.is_file():
        return name
    return page.link(name, quote(os.fsencode(Path(os.path.relpath(report, folder)).as_posix())))


@figures.styled
def curves(runs: Sequence[Compared]) -> Figure:
    """Draw the validation loss and score of every run, by epoch and by time."""
    measured = [run for run in runs if run.rows]
    long = max((run.seconds for run in measured), default=0) > 180
    figure, grid = figures.canvas(10, 6.4, 2, 2)
    for number, run in enumerate(runs):
        if not run.rows:
            continue
        style = figures.line_style(number)
        metric = main_metric(run.rows[0], "val_")
        times = np.cumsum([row["seconds"] for row in run.rows]) / (60 if long else 1)
        for axes, name, factor in ((grid[0], "val_loss", 1), (grid[1], f"val_{metric.name}", metric.factor)):
            values = [factor * row[name] for row in run.rows]
            marker = "o" if len(values) == 1 else ""
            axes[0].plot([row["epoch"] for row in run.rows], values, marker=marker, label=figures.legend_name(run.name), **style)
            axes[1].plot(times, values, marker=marker, **style)
    titles = {main_metric(run.rows[0], "val_").label for run in measured}
    for row, name in zip(grid, ("loss", titles.pop() if len(titles) == 1 else "score"), strict=True):
        row[0].set_ylabel(f"validation {name}")
        for axes, against in zip(row, ("epoch", "minutes of training" if long else "seconds of training"), strict=True):
            axes.set_xlabel(against)
            axes.grid(alpha=0.25)
        row[0].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False)
    return figure
