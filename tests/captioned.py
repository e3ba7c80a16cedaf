"""Drawn shapes with sentences that tell their colour and their place."""

import csv
import itertools
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = ("red", "green", "blue", "white")
PLACES = {"left": (0.25, 0.5), "right": (0.75, 0.5), "top": (0.5, 0.25), "bottom": (0.5, 0.75)}
WAYS = ("A {colour} {shape} on the {place} .", "there is a {shape}, and it is {colour}")


def write_captions(folder: Path, *, size: int = 24, shapes: tuple[str, ...] = ("circle", "square")) -> Path:
    """A picture for each colour, shape and place, with two captions; gives ``captions.csv``."""
    rows = [("image", "caption")]
    for number, (colour, shape, place) in enumerate(itertools.product(COLOURS, shapes, PLACES)):
        picture = Image.new("RGB", (size, size), "black")
        x, y = (size * share for share in PLACES[place])
        box = [x - size / 5, y - size / 5, x + size / 5, y + size / 5]
        pen = ImageDraw.Draw(picture)
        (pen.ellipse if shape == "circle" else pen.rectangle)(box, fill=colour)
        picture.save(folder / f"{number:02}.png")
        rows += [(f"{number:02}.png", way.format(colour=colour, shape=shape, place=place)) for way in WAYS]
    file = folder / "captions.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(rows)
    return file
