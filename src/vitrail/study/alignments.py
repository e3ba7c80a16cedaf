"""Attention between the tokens of two sentences, drawn."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from vitrail.study import figures
from vitrail.weights.translator import Aligned

SMALL = {"fontsize": 7, "parse_math": False}
"""Of tokens, which may be anything."""


def alignment_maps(drawn: Sequence[Aligned], titles: Sequence[str] = ()) -> Figure:
    """A map for each sentence, two in a row, with a title below where there are any."""
    rows = -(-len(drawn) // 2)
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(9.6, 4.6 * rows), layout="constrained")
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes in grid.flat[len(drawn) :]:
            axes.set_axis_off()
        for axes, title in zip(grid.flat, titles, strict=False):
            axes.set_xlabel(title, parse_math=False)
        for axes, (read, written, weights) in zip(grid.flat, drawn, strict=False):
            axes.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
            axes.set_xticks(range(len(read)), [figures.readable(word.strip() or "␣") for word in read], rotation=90, **SMALL)
            axes.set_yticks(range(len(written)), [figures.readable(word.strip() or "␣") for word in written], **SMALL)
            axes.tick_params(length=0)
            axes.xaxis.tick_top()
    return figure
