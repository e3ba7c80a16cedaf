"""Pictures of a run, legible at report size and safe for colour-blind eyes."""

import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

matplotlib.use("Agg")

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"  # from the palette of Okabe and Ito
FALLBACKS = ("Noto Sans CJK KR", "Noto Sans CJK JP", "Malgun Gothic", "Apple SD Gothic Neo", "Hiragino Sans", "Microsoft YaHei")
FONTS = ["DejaVu Sans", *(name for name in FALLBACKS if name in font_manager.get_font_names())]
STYLE: Any = {"font.family": FONTS, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110}
MAX_NAMED_CLASSES = 40


def save(figure: Figure, file: Path) -> None:
    """Write a figure as PNG."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that no font here has is drawn as boxes
        figure.savefig(file, bbox_inches="tight", facecolor="white")


def short(name: str, length: int = 16) -> str:
    """A name that fits beside a picture."""
    return name if len(name) <= length else name[: length - 1] + "…"


def curves(rows: list[dict[str, Any]], kept: int) -> Figure:
    """Loss and accuracy against epochs, training and validation, with the epoch ``kept`` marked."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        loss, accuracy = figure.subplots(1, 2)
        epochs = [row["epoch"] for row in rows]
        for axes, name, factor in ((loss, "loss", 1), (accuracy, "top1", 100)):
            for split, label, color in (("train", "training", ORANGE), ("val", "validation", BLUE)):
                values = [factor * row[f"{split}_{name}"] for row in rows]
                axes.plot(epochs, values, color=color, label=label, marker="o" if len(rows) == 1 else None)
            axes.axvline(kept, color=GREY, linewidth=1, linestyle=":", label=f"kept: epoch {kept}", zorder=0)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.25)
        loss.set_ylabel("cross-entropy")
        loss.set_ylim(bottom=0)
        accuracy.set_ylabel("accuracy, %")
        loss.legend(loc="upper right", framealpha=1, edgecolor="none")
    return figure


def confusion(matrix: np.ndarray, classes: list[str]) -> Figure:
    """Rows are true classes, columns guesses; colour is the share of the row, numbers are images."""
    count = len(classes)
    side = min(12.0, max(4.2, 1.8 + 0.36 * count))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(side, side), layout="constrained")
        axes = figure.subplots()
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set(xlabel="guessed", ylabel="true")
        if count <= MAX_NAMED_CLASSES:
            names = [short(name) for name in classes]
            axes.set_xticks(range(count), names, rotation=90 if max(map(len, names)) > 3 else 0, parse_math=False)
            axes.set_yticks(range(count), names, parse_math=False)
        if count <= 20:
            _numbers(axes, matrix, shares)
        axes.spines[:].set_visible(False)
    return figure


def _numbers(axes: Axes, matrix: np.ndarray, shares: np.ndarray) -> None:
    for (row, column), number in np.ndenumerate(matrix):
        if number:
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(number), ha="center", va="center", color=color, fontsize=8)


def examples(images: list[Image.Image], captions: list[str], right: list[bool], *, columns: int = 6) -> Figure:
    """A sheet of images with their captions; wrong guesses have orange captions and a frame."""
    rows = -(-len(images) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.65 * columns, 2.05 * rows), layout="constrained")
        for axes in figure.subplots(rows, columns, squeeze=False).flat:
            axes.set_axis_off()
        for axes, image, caption, is_right in zip(figure.axes, images, captions, right, strict=False):
            axes.set_axis_on()
            axes.set(xticks=[], yticks=[])
            axes.imshow(image, cmap="gray" if image.mode == "L" else None, vmin=0, vmax=255)
            axes.set_title(caption, fontsize=8, parse_math=False, color="black" if is_right else ORANGE)
            for spine in axes.spines.values():
                spine.set(visible=not is_right, color=ORANGE, linewidth=2)
    return figure
