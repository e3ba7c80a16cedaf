"""Figures of a run, legible at report size and for colour-blind readers."""

import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from vitrail.files import write_bytes
from vitrail.runtime.terminal import escaped
from vitrail.study.quality.calibration import Calibration
from vitrail.tasks.metrics import METRICS, main_metric

matplotlib.use("Agg")

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"
COLORS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", GREY)
"""Palette of Okabe and Ito."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Markers, one for each colour, for readers who cannot tell colours apart."""
LINES = ("-", "--", ":", "-.")
"""Dashes, used when there are more lines than colours."""
FALLBACKS = ("Noto Sans CJK KR", "Noto Sans CJK JP", "Malgun Gothic", "Apple SD Gothic Neo", "Hiragino Sans", "Microsoft YaHei")
FONTS = ["DejaVu Sans", *(name for name in FALLBACKS if name in font_manager.get_font_names())]
STYLE: Any = {"font.family": FONTS, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110}
MAX_NAMED_CLASSES, MAX_NUMBERED_CLASSES = 40, 20
"""Maximum number of classes with names beside a confusion matrix, and with numbers inside it."""


styled = matplotlib.rc_context(STYLE)
"""Decorator of functions that draw a figure in this style."""


def canvas(width: float, height: float, rows: int = 0, columns: int = 1, **grid: Any) -> tuple[Figure, Any]:
    """Return a figure, its size in inches, with its axes, or with an array (rows, columns) of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **grid) if rows else figure.subplots()


def bare(axes: Axes) -> None:
    """Remove ticks and frame, as around an image."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def save(figure: Figure, file: Path) -> None:
    """Write a figure as PNG; an interrupted write leaves no file."""
    picture = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # characters that no font here has are drawn as boxes
        figure.savefig(picture, format="png", bbox_inches="tight", facecolor="white")
    write_bytes(file, picture.getvalue())


def short(name: str, length: int = 16) -> str:
    """Shorten a name to ``length`` characters."""
    return name if len(name) <= length else name[: length - 1] + "…"


def readable(label: str, length: int = 16) -> str:
    """Return a class name for figures: the first of ImageNet's names, with spaces for underscores, shortened."""
    first = label.partition(", ")[0].replace("_", " ").strip()
    return short(first or label, length)


def short_path(name: str, length: int = 26) -> str:
    """Return the end of a path, which distinguishes files."""
    name = escaped(name)
    return name if len(name) <= length else "…" + name[1 - length :]


def legend_name(name: str) -> str:
    """Return a name for a legend, escaped: $ would begin a formula, and names with a leading _ would be hidden."""
    return "\u200b" + short(escaped(name), 40).replace("$", r"\$")


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dashes of a line by its number, the same in every figure of a page."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": LINES[number // len(COLORS) % len(LINES)]}


@styled
def curves(rows: Sequence[Mapping[str, Any]], kept: int) -> Figure:
    """Draw loss, main metric and learning rate by epoch, with the epoch ``kept`` marked."""
    main = main_metric(rows[0], "val_")
    shown = [METRICS["loss"]] if main.name == "loss" else [METRICS["loss"], main]
    figure, ((loss, *others, rate),) = canvas(10, 3.3, 1, len(shown) + 1, width_ratios=(*[3] * len(shown), 2))
    for axes, metric in zip((loss, *others), shown, strict=True):
        for split, label, color in (("train", "training", ORANGE), ("val", "validation", BLUE)):
            _curve(axes, rows, f"{split}_{metric.name}", metric.factor, color=color, label=label)
        axes.set_ylabel(metric.label)
    _curve(rate, rows, "lr", 1, color=GREY)
    rate.set_ylabel("learning rate")
    for axes in (loss, *others, rate):
        axes.axvline(kept, color=GREY, linewidth=1, linestyle=":", label=f"kept: epoch {kept}", zorder=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
    for axes in (loss, rate):
        axes.update_datalim([(kept, 0)])
        axes.autoscale_view()
        axes.set_ylim(bottom=0)
    rate.ticklabel_format(axis="y", scilimits=(-2, 3))
    figure.legend(*loss.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False)
    return figure


def _curve(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, factor: float, **style: Any) -> None:
    """Draw a line through the epochs that have this value; a single epoch is a point."""
    known = [row for row in rows if name in row]
    marker = "o" if len(known) == 1 else None
    axes.plot([row["epoch"] for row in known], [factor * row[name] for row in known], marker=marker, **style)


@styled
def reliability(made: Calibration, statement: str, truth: str) -> Figure:
    """Draw the true fraction by predicted probability, and below it how often each probability occurs."""
    edges = np.linspace(0, 100, len(made.counts) + 1)
    figure, ((shares,), (counts,)) = canvas(5, 5.2, 2, 1, sharex=True, height_ratios=(3, 1))
    bars: Any = {"align": "edge", "width": edges[1], "edgecolor": "white"}
    shares.bar(edges[:-1], 100 * np.nan_to_num(made.share), color=BLUE, **bars)
    shares.plot([0, 100], [0, 100], color=GREY, linestyle="--")
    shares.plot(100 * made.probability, 100 * made.share, "o", color=ORANGE, markersize=4, clip_on=False, zorder=3)
    counts.bar(edges[:-1], 100 * made.counts / made.counts.sum(), color=GREY, **bars)
    shares.set(ylim=(0, 100), ylabel=truth)
    counts.set(xlim=(0, 100), xlabel=statement, ylabel="share, %")
    return figure


@styled
def confusion(matrix: np.ndarray, classes: list[str]) -> Figure:
    """Draw true classes in rows and predictions in columns; the colour is the fraction of the row (many classes: its root)."""
    count = len(classes)
    side = min(12.0, max(4.2, 1.8 + 0.36 * count)) if count <= MAX_NAMED_CLASSES else 8.0
    figure, axes = canvas(side, side)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", norm=PowerNorm(1 if count <= MAX_NAMED_CLASSES else 0.5, vmin=0, vmax=1))
    axes.set(xlabel="guessed", ylabel="true")
    if count <= MAX_NAMED_CLASSES:
        names = [readable(name) for name in classes]
        axes.set_xticks(range(count), names, rotation=90 if max(map(len, names)) > 3 else 0, parse_math=False)
        axes.set_yticks(range(count), names, parse_math=False)
    if count <= MAX_NUMBERED_CLASSES:
        _numbers(axes, matrix, shares)
    axes.spines[:].set_visible(False)
    return figure


def _numbers(axes: Axes, matrix: np.ndarray, shares: np.ndarray) -> None:
    for (row, column), number in np.ndenumerate(matrix):
        if number:
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(number), ha="center", va="center", color=color, fontsize=8)


@styled
def examples(
    images: list[Image.Image], captions: list[str], correct: list[bool], names: list[str], *, columns: int = 6
) -> Figure:
    """Draw images with captions above and names below; wrong predictions have orange captions and a frame."""
    rows = -(-len(images) // columns)
    figure, grid = canvas(9.9, 2.25 * rows, rows, columns)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, caption, is_correct, name in zip(figure.axes, images, captions, correct, names, strict=False):
        axes.set_axis_on()
        axes.set(xticks=[], yticks=[])
        axes.imshow(image, cmap="gray" if image.mode == "L" else None, vmin=0, vmax=255)
        axes.set_xlabel(name, fontsize=7, parse_math=False)
        axes.set_title(caption, fontsize=8, parse_math=False, color="black" if is_correct else ORANGE)
        for spine in axes.spines.values():
            spine.set(visible=not is_correct, color=ORANGE, linewidth=2)
    return figure
