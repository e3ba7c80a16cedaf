"""Placement of names beside the points of a figure, such that they cover neither each other nor points and lines."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

SIZE = 8
"""Font size. All lengths in this module are in points, 1/72 inch."""
MARKER = 5.0
"""Half the side of a point's marker."""
DISTANCES = (7, 13, 20, 30, 42, 56, 72, 90)
"""Distances to try between a point and its name; from the third on, a line connects the two."""
ANGLES = tuple(math.radians(angle) for angle in (0, 90, 270, 45, 315, 180, 135, 225, 20, 340, 160, 200, 65, 115, 245, 295))
"""Directions to try from a point to its name, counterclockwise from the right."""
OUTSIDE, NAME, OBSTACLE, FAR = 1000.0, 100.0, 3.0, 1.0
"""Costs: of leaving the axes, of each covered name, of each covered marker or piece of a line, and of each distance step."""


class Label(NamedTuple):
    """A name and its point in data coordinates."""

    x: float
    y: float
    text: str
    color: str


def place(figure: Figure, axes: Axes, labels: Sequence[Label]) -> list[Annotation]:
    """Write names beside their points, each at the position of least cost; call it after everything else is drawn."""
    figure.draw_without_rendering()  # computes the positions of the axes
    scale = 72 / figure.dpi
    frame, obstacles = _scaled(axes.get_window_extent(), scale), _obstacles(axes, scale)
    names: list[Bbox] = []
    written = []
    for label in labels:
        x, y = scale * axes.transData.transform((label.x, label.y))
        words = axes.annotate(label.text, (label.x, label.y), fontsize=SIZE, parse_math=False)
        extent = _scaled(words.get_window_extent(), scale)
        words.remove()
        places = []
        for step, angle in itertools.product(range(len(DISTANCES)), ANGLES):
            right, up = (f(angle) * (DISTANCES[step] + s / 2) for f, s in ((math.cos, extent.width), (math.sin, extent.height)))
            box = Bbox.from_bounds(x + right - extent.width / 2, y + up - extent.height / 2, extent.width, extent.height)
            cost = NAME * box.count_overlaps(names) + OBSTACLE * box.count_overlaps(obstacles) + FAR * step
            places.append((cost + OUTSIDE * (not _inside(box, frame)), step, right, up, box))
        _, step, right, up, box = min(places, key=lambda place: place[0])
        names.append(box)
        joined = {"arrowstyle": "-", "color": label.color, "linewidth": 0.6, "shrinkB": MARKER, "relpos": (0.5, 0.5)}
        written.append(
            axes.annotate(
                label.text, (label.x, label.y), (right, up), textcoords="offset points", ha="center", va="center",
                fontsize=SIZE, color=label.color, parse_math=False, in_layout=False, arrowprops=joined if step > 1 else None,
            )
        )  # fmt: skip
    return written


def _scaled(box: Bbox, scale: float) -> Bbox:
    return Bbox(scale * box.get_points())


def _inside(box: Bbox, frame: Bbox) -> bool:
    return bool(np.all(np.asarray(box.min) >= frame.min) and np.all(np.asarray(box.max) <= frame.max))


def _obstacles(axes: Axes, scale: float) -> list[Bbox]:
    """Return a box for each marker, and for each short piece of the lines and error bars."""
    lines = [scale * axes.transData.transform(np.asarray(line.get_xydata())) for line in axes.get_lines()]
    bars = [scale * axes.transData.transform(np.asarray(path.vertices)) for bars in axes.collections for path in bars.get_paths()]
    points = [(point, MARKER) for line in lines for point in line]
    for path in [*lines, *bars]:
        for a, b in itertools.pairwise(path):
            points += [(point, 1.0) for point in np.linspace(a, b, 2 + round(math.dist(a, b) / MARKER))]
    return [Bbox([point - half, point + half]) for point, half in points]
