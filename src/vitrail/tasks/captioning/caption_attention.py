"""What a captioner looked at for each word, laid over the picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vitrail.files import write_text
from vitrail.study.maps.patch_coordinates import Places, patch_places
from vitrail.study.maps.token_alignment import which_attention
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.figures import STYLE
from vitrail.tasks.captioning.weights import TrainedCaptioner

LOOKS = "The picture, then for each word how much the model looked at each part of it, {}; what it did not see is pale."
COLUMNS = 6
"""Pictures in a row of a sheet."""
SIDE = 1.9
"""Of a picture on a sheet, in inches."""
LONGEST = 200
"""Bytes of an image's name that are kept in the name of its sheet: a file system takes 255, a number and an ending among them."""

Look = tuple[str, np.ndarray]
"""A word, and how much the model looked at each patch, (rows, columns)."""


def overlays(picture: Image.Image, view: pictures.Box, places: Places, words: Sequence[Look]) -> list[Image.Image]:
    """The picture once for each word, aglow where the model looked.

    Args:
        picture: upright.
        view: what the model saw of it.
        places: where the values of the looks stand.
        words: with their looks.
    """
    small = pictures.thumbnail(picture)
    scale = small.width / picture.width
    box, seen = places.within((view[0] * scale, view[1] * scale, view[2] * scale, view[3] * scale))
    return [pictures.overlay(small, look, box, seen) for _, look in words]


def looks_sheet(picture: Image.Image, view: pictures.Box, places: Places, words: Sequence[Look]) -> Figure:
    """The picture, then `overlays`, each under its word."""
    laid = zip([word for word, _ in words], overlays(picture, view, places, words), strict=True)
    shown = [("", pictures.thumbnail(picture)), *laid]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    tall = min(pictures.TALLEST, picture.height / picture.width)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(SIDE * columns, rows * (SIDE * tall + 0.3)), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid:
            axes.set_axis_off()
        for axes, (word, image) in zip(grid, shown, strict=False):
            axes.imshow(image)
            axes.set_title(word, fontsize=10, parse_math=False)
    return figure


def write_looks(folder: Path, trained: TrainedCaptioner, found: Sequence[tuple[Path, str, Sequence[Look]]]) -> None:
    """A picture NUMBER-NAME.png for each image with its caption and the words of it, and ``index.html`` with all of them."""
    sections, preparation, places = [], trained.preparation, patch_places(trained.model.get_submodule("encoder"))
    about = LOOKS.format(which_attention(trained.model))
    for number, (file, caption, words) in enumerate(found, 1):
        picture = preparation.decode(file)
        name = file.stem.encode(errors="ignore")[:LONGEST].decode(errors="ignore")
        drawn = folder / f"{number:04}-{name}.png"
        figures.save(looks_sheet(picture, preparation.box(*picture.size), places, words), drawn)
        sections.append(page.section(caption, page.picture(drawn, caption, f"{file.name}. {about}")))
    write_text(folder / "index.html", page.page("Where the model looked for each word", sections))
