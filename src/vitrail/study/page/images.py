"""Figures of a model's internals, legible at report size and for colour-blind readers."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from vitrail.data.loading.sampler import spread
from vitrail.study.page.figures import BLUE, GREY, ORANGE, bare, canvas, styled
from vitrail.tasks.metrics import Metric

HEAT = matplotlib.colormaps["inferno"]
PALETTE = (255 * HEAT(np.linspace(0.35, 1, 256))[:, :3]).astype(np.uint8)
"""The colour map without its darkest third, which would turn an image black."""
BRIGHTEST = 0.95
THUMBNAIL = 480
"""Pixels of the longer side of an image on a sheet."""
TALLEST = 2.0
"""Maximum height of an image on a sheet, as a multiple of its column's width; a taller image is drawn narrower."""
MOST_CELLS = 14
"""Maximum rows and columns of small maps in a figure, also for layers and heads; of more, evenly spaced ones are shown."""
LAYER = "layer, from 0"
Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


def overlay(
    picture: Image.Image, heat: np.ndarray, box: Box, seen: Box | None = None, *, brightest: float = BRIGHTEST
) -> Image.Image:
    """Draw a map over the part of an image that the model saw, at the image's resolution.

    The image is grey where the map is low and glows where it is high. Parts that the model did not see are pale.

    Args:
        picture: upright image of any size.
        heat: map (rows, columns); where it is lowest, the image is unchanged.
        box: the part of the image that the map covers; see `vitrail.study.patch_places`.
        seen: the part of the image that the model saw; ``box`` by default. Beyond ``box`` the map's border values are used.
        brightest: quantile of the values from which the glow is strongest; by default the highest twentieth.
    """
    seen = seen or box
    left, top = (min(max(math.floor(start), 0), size - 1) for start, size in zip(seen[:2], picture.size, strict=True))
    right, bottom = (
        min(max(math.ceil(end), start + 1), size) for end, start, size in zip(seen[2:], (left, top), picture.size, strict=True)
    )
    low, high = float(heat.min()), float(np.quantile(heat, brightest))  # a few patches, often in corners, exceed all others
    levels = (255 * (heat - low) / max(high - low, 1e-12)).clip(0, 255).astype(np.uint8)
    shown = _enlarged(levels, box, (left, top, right, bottom))
    warm = Image.fromarray(PALETTE[np.asarray(shown)])
    grey = picture.convert("L")
    pale = Image.blend(grey, Image.new("L", picture.size, 255), 0.65).convert("RGB")
    under = middling(grey.crop((left, top, right, bottom))).convert("RGB")
    pale.paste(Image.composite(warm, under, shown.point([round(0.7 * level) for level in range(256)])), (left, top))
    return pale


def _enlarged(levels: np.ndarray, box: Box, part: tuple[int, int, int, int]) -> Image.Image:
    """Interpolate a map that covers ``box`` to the pixels of a part of an image; beyond the box its border values are used."""
    (rows, columns), (left, top, right, bottom) = levels.shape, box
    x = 1 + columns * (np.array(part[0::2]) - left) / (right - left)
    y = 1 + rows * (np.array(part[1::2]) - top) / (bottom - top)
    (x0, x1), (y0, y1) = x.clip(0, columns + 2), y.clip(0, rows + 2)
    around = Image.fromarray(np.pad(levels, 1, mode="edge"))
    size = part[2] - part[0], part[3] - part[1]
    return around.resize(size, Image.Resampling.BICUBIC, box=(x0, y0, x1, y1))


def middling(grey: Image.Image) -> Image.Image:
    """Return a grey image adjusted to medium brightness, without black or white."""
    mean = np.clip(np.asarray(grey).mean() / 255, 0.12, 0.8)
    gamma = math.log(0.5) / math.log(mean)
    return grey.point([round(40 + 150 * (level / 255) ** gamma) for level in range(256)])


def thumbnail(picture: Image.Image) -> Image.Image:
    shrunk = picture.copy()
    shrunk.thumbnail((THUMBNAIL, THUMBNAIL))
    return shrunk


@styled
def sheet(
    rows: Sequence[Sequence[Image.Image]], head: Sequence[str], captions: Sequence[str], wrong: Collection[int] = ()
) -> Figure:
    """Draw rows of images, with column names above and a caption below the first image of each row.

    Rows with an index in ``wrong`` have orange captions.
    """
    side, shapes = 2.0, [min(TALLEST, row[0].height / row[0].width) for row in rows]
    figure, grid = canvas(
        side * len(head), side * sum(shapes) + 0.3 * len(rows) + 0.2, len(rows), len(head), height_ratios=shapes
    )
    for place, (row, caption) in enumerate(zip(rows, captions, strict=True)):
        for axes, image in zip(grid[place], row, strict=True):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest" if image.width < 96 else "antialiased")
            bare(axes)
        color = ORANGE if place in wrong else "black"
        grid[place, 0].set_xlabel(caption, fontsize=8, parse_math=False, color=color)
    for axes, name in zip(grid[0], head, strict=True):
        axes.set_title(name, fontsize=10, parse_math=False)
    return figure


@styled
def heads(maps: np.ndarray) -> Figure:
    """Draw a small map per layer (across) and head (down), each from 0 to its maximum: (layers, k, rows, columns)."""
    across, down = spread(maps.shape[0], MOST_CELLS), spread(maps.shape[1], MOST_CELLS)
    figure, grid = canvas(0.75 * len(across) + 0.5, 0.75 * len(down) + 0.5, len(down), len(across))
    for i, head in enumerate(down):
        for j, layer in enumerate(across):
            grid[i, j].imshow(maps[layer, head], cmap=HEAT, vmin=0)
            grid[i, j].set(xticks=[], yticks=[])
        grid[i, 0].set_ylabel(f"{head}", rotation=0, ha="right", va="center")
    for j, layer in enumerate(across):
        grid[0, j].set_title(f"{layer}", fontsize=10)
    figure.suptitle(LAYER, fontsize=10)
    figure.supylabel("head, from 0", fontsize=10)
    return figure


@styled
def distances(
    found: Sequence[np.ndarray], everywhere: float, convolutional: Sequence[float], stages: Sequence[int] = ()
) -> Figure:
    """Draw the mean attention distance by layer and head, (k,) each, with uniform attention and a ResNet for comparison.

    A vertical line marks the first layer of each of the ``stages``.
    """
    layers = np.arange(len(found))
    figure, axes = canvas(7, 4)
    axes.axhline(everywhere, color=GREY, linestyle="--", linewidth=1, label="uniform attention to the image")
    depth = np.linspace(0, max(len(found) - 1, 1e-3), len(convolutional))
    axes.plot(depth, convolutional, color=BLUE, label="ResNet-50, uniform in its receptive field")
    for first in stages:
        axes.axvline(first - 0.5, color=GREY, linewidth=0.8, linestyle=":")
    places = np.repeat(layers, [len(layer) for layer in found])
    axes.plot(places, np.concatenate(found), "o", color=ORANGE, markersize=4, alpha=0.8, label="a head")
    axes.plot(layers, [layer.mean() for layer in found], color=ORANGE, linewidth=1, label="mean of the heads")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel=LAYER, ylabel="mean distance, pixels", ylim=(0, None))
    axes.grid(alpha=0.25)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


@styled
def similarity(maps: np.ndarray) -> Figure:
    """Draw for every patch a small map of its position's similarity to all positions: (rows, columns, rows, columns)."""
    down, across = spread(maps.shape[0], MOST_CELLS), spread(maps.shape[1], MOST_CELLS)
    rows, columns = maps.shape[2:]
    gap = max(1, rows // 7)
    sheet = np.full((len(down) * (rows + gap) - gap, len(across) * (columns + gap) - gap), np.nan)
    for i, row in enumerate(down):
        for j, column in enumerate(across):
            top, left = i * (rows + gap), j * (columns + gap)
            sheet[top : top + rows, left : left + columns] = maps[row, column]
    figure, axes = canvas(0.5 * len(across) + 1.8, 0.5 * len(down) + 0.8)
    figure.colorbar(axes.imshow(sheet, cmap="viridis", interpolation="nearest"), ax=axes, shrink=0.7)
    axes.set_xticks([j * (columns + gap) + (columns - 1) / 2 for j in range(len(across))], map(str, across))
    axes.set_yticks([i * (rows + gap) + (rows - 1) / 2 for i in range(len(down))], map(str, down))
    axes.set(xlabel="column of the patch, from 0", ylabel="row of the patch, from 0")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


@styled
def offsets(biases: Sequence[np.ndarray]) -> Figure:
    """Draw the bias by offset, a small map per head (across) and stage (down): (k, rows, columns) each.

    All maps have one scale, which leaves out the highest and lowest hundredth.
    """
    across = spread(max(map(len, biases)), MOST_CELLS)
    low, high = np.quantile(np.concatenate([stage.ravel() for stage in biases]), [0.01, 0.99])
    figure, grid = canvas(0.75 * len(across) + 1.5, 0.75 * len(biases) + 0.7, len(biases), len(across))
    for stage, maps in enumerate(biases):
        shown = spread(len(maps), MOST_CELLS)
        for axes in grid[stage, len(shown) :]:
            axes.set_axis_off()
        for axes, head in zip(grid[stage], shown, strict=False):
            drawn = axes.imshow(maps[head], cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
            bare(axes)
            axes.set_title(f"{head}", fontsize=8, pad=2)
        grid[stage, 0].set_ylabel(f"{stage}", rotation=0, ha="right", va="center")
    figure.colorbar(drawn, ax=grid, shrink=0.7)
    figure.suptitle("head, from 0", fontsize=10)
    figure.supylabel("stage, from 0", fontsize=10)
    return figure


@styled
def filters(components: np.ndarray) -> Figure:
    """Draw principal components (count, C, h, w) as small images; grey is zero."""
    columns = 7
    rows = -(-len(components) // columns)
    figure, grid = canvas(0.95 * columns, 0.95 * rows, rows, columns)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, component in zip(figure.axes, components, strict=False):
        shown = 0.5 + 0.5 * component / max(np.abs(component).max(), np.finfo(np.float32).tiny)
        picture = shown.transpose(1, 2, 0) if len(shown) == 3 else shown.mean(axis=0)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    return figure


CURVES: dict[str, dict[str, Any]] = {
    "least relevant first": {"color": BLUE},
    "at random": {"color": GREY},
    "most attended first": {"color": ORANGE, "linestyle": ":"},
    "most by rollout first": {"color": ORANGE, "linestyle": "--"},
    "most relevant first": {"color": ORANGE},
}
"""Orders of removing patches, with their line styles."""


@styled
def occlusion(shares: Sequence[float], curves: Mapping[str, Sequence[float]], what: str) -> Figure:
    """Draw the remaining predictions in per cent by the fraction of removed patches, for each order in `CURVES`."""
    figure, axes = canvas(7, 4)
    for name, style in CURVES.items():
        if name in curves:
            axes.plot(100 * np.array(shares), 100 * np.array(curves[name]), marker="o", markersize=3, label=name, **style)
    axes.set(xlabel="removed patches, %", ylabel=what, xlim=(0, 100), ylim=(0, None))
    axes.grid(alpha=0.25)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


@styled
def layers(accuracies: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the accuracy of probes by layer, in per cent."""
    figure, axes = canvas(7, 3.6)
    for (name, values), color in zip(accuracies.items(), (BLUE, ORANGE, GREY), strict=False):
        axes.plot(range(len(values)), 100 * np.array(values), marker="o", markersize=3, label=name, color=color)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel=LAYER, ylabel="accuracy, %")
    axes.grid(alpha=0.25)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


ENGINE_COLORS = {"torch": BLUE, "onnxruntime": GREY, "openvino": ORANGE}
PRECISION_MARKERS = {"fp32": "o", "bf16": "s", "fp16": "D", "int8": "^"}


@styled
def frontier(ways: Sequence[tuple[str, str, float, float | None]], metric: Metric) -> Figure:
    """Draw engines and precisions by images per second and, if known, by score.

    A line connects those for which no other is both faster and at least as good.
    """
    figure, axes = canvas(7, 3.6)
    if any(score is None for *_, score in ways):
        names = [f"{engine} {precision}" for engine, precision, *_ in ways]
        axes.barh(names, [rate for _, _, rate, _ in ways], color=[ENGINE_COLORS[engine] for engine, *_ in ways])
        axes.invert_yaxis()
        axes.set(xlabel="images per second")
        return figure
    points = [(engine, precision, rate, metric.factor * (score or 0.0)) for engine, precision, rate, score in ways]
    best = sorted(p[2:] for p in points if not any(q[2] > p[2] and q[3] >= p[3] for q in points))
    axes.plot(*zip(*best, strict=True), color=GREY, linewidth=1, linestyle="--", zorder=1)
    for engine, precision, rate, score in points:
        style: dict[str, Any] = {"color": ENGINE_COLORS[engine], "marker": PRECISION_MARKERS[precision]}
        axes.plot(rate, score, linestyle="", markersize=8, alpha=0.85, label=f"{engine} {precision}", **style)
    axes.set(xlabel="images per second", ylabel=metric.label, xlim=(0, 1.1 * max(rate for *_, rate, _ in points)))
    axes.margins(y=0.2)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure
