"""Names beside the points of a picture, where they hide neither each other nor points and lines."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

SIZE = 8
"""Of the letters."""
MARKER = 5.0
"""Half the side of a point's marker."""
DISTANCES = (7, 13, 20, 30, 42, 56, 72, 90)
"""Between a point and its name, as all lengths here in points of 1/72 inch; further than the second, a line joins them."""
ANGLES = tuple(math.radians(angle) for angle in (0, 90, 270, 45, 315, 180, 135, 225, 20, 340, 160, 200, 65, 115, 245, 295))
"""Directions in which a name may stand from its point, against the clock from the right."""
COSTS = {"outside": 1000.0, "name": 100.0, "marker": 10.0, "line": 3.0, "far": 2.0}
"""Of what a name should not do, the worst first: leave the picture, hide a name, a marker or a piece of a line, stand far off."""


@dataclass(frozen=True)
class Label:
    """A name, and its point as the axes count."""

    x: float
    y: float
    text: str
    color: str


@dataclass(frozen=True)
class Box:
    """A rectangle by its middle and the halves of its sides."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: "Box") -> bool:
        """Whether the two have some of the picture in common."""
        return abs(self.x - other.x) < self.width + other.width and abs(self.y - other.y) < self.height + other.height

    def is_in(self, other: "Box") -> bool:
        """Whether the other holds all of it."""
        across = abs(self.x - other.x) + self.width <= other.width
        return across and abs(self.y - other.y) + self.height <= other.height


def place(figure: Figure, axes: Axes, labels: Sequence[Label]) -> list[Annotation]:
    """Write names beside their points, when all else of the figure is drawn."""
    figure.draw_without_rendering()  # which decides where the axes are
    scale = 72 / figure.dpi
    frame = axes.get_window_extent()
    middle = scale * (frame.x0 + frame.x1) / 2, scale * (frame.y0 + frame.y1) / 2
    inside = Box(*middle, scale * frame.width / 2, scale * frame.height / 2)
    points = [scale * axes.transData.transform((label.x, label.y)) for label in labels]
    markers, lines = _drawn(axes, scale)
    names: list[Box] = []
    written = []
    for label, (x, y) in zip(labels, points, strict=True):
        words = axes.annotate(label.text, (label.x, label.y), fontsize=SIZE, parse_math=False)
        extent = words.get_window_extent()
        words.remove()
        half = scale * extent.width / 2 + 1, scale * extent.height / 2
        name, distance = min(
            ((_beside(x, y, *half, distance, angle), distance) for distance, angle in itertools.product(DISTANCES, ANGLES)),
            key=lambda found: COSTS["far"] * found[1] / DISTANCES[1] + _hidden(found[0], inside, names, markers, lines),
        )
        names.append(name)
        joined = {"arrowstyle": "-", "color": label.color, "linewidth": 0.6, "shrinkB": MARKER, "relpos": (0.5, 0.5)}
        written.append(
            axes.annotate(
                label.text, (label.x, label.y), (name.x - x, name.y - y), textcoords="offset points", ha="center", va="center",
                fontsize=SIZE, color=label.color, parse_math=False, in_layout=False,
                arrowprops=joined if distance > DISTANCES[1] else None,
            )
        )  # fmt: skip
    return written


def _beside(x: float, y: float, width: float, height: float, distance: float, angle: float) -> Box:
    """The box of a name so far from its point."""
    return Box(x + math.cos(angle) * (distance + width), y + math.sin(angle) * (distance + height), width, height)


def _hidden(name: Box, inside: Box, names: Sequence[Box], markers: Sequence[Box], lines: Sequence[Box]) -> float:
    """What a name in this place costs."""
    over = {"name": names, "marker": markers, "line": lines}
    costs = (COSTS[kind] * sum(name.meets(box) for box in boxes) for kind, boxes in over.items())
    return sum(costs) + COSTS["outside"] * (not name.is_in(inside))


def _drawn(axes: Axes, scale: float) -> tuple[list[Box], list[Box]]:
    """What names should not hide: markers, and the pieces of lines and error bars, so short that a box each will do."""
    paths = [np.asarray(line.get_xydata()) for line in axes.get_lines()]
    paths += [np.asarray(path.vertices) for bars in axes.collections for path in bars.get_paths()]
    corners = [scale * axes.transData.transform(path) for path in paths]
    markers = [Box(x, y, MARKER, MARKER) for path in corners[: len(axes.get_lines())] for x, y in path]
    pieces = []
    for path in corners:
        for a, b in itertools.pairwise(path):
            count = 2 + round(math.dist(a, b) / MARKER)
            pieces += [Box(x, y, 1, 1) for x, y in np.linspace(a, b, count)]
    return markers, pieces
