"""Pillow's colour modes to RGB or grey, in memory of a few bytes a pixel however wide the stored values are."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from PIL import Image

Mode = Literal["RGB", "L"]

PLAIN = ("1", "L", "P", "RGB", "RGBX")
"""Modes that Pillow converts as a viewer would show them, where nothing of the picture is transparent."""
STRIP = 2**18
"""Pixels that are converted at a time in any other mode, which takes several copies of them."""
WHITE = {"F": (1, 255), "I": (255, 65_535), "I;16": (65_535,)}
"""Values that are white by convention in floats, in integers of 32 bits and in integers of 16 bits, the smallest first."""
LEAST_USED = 1 / 4
"""Fraction of black to white that a file has to use; with less, 64 of 256 greys would be left of it."""
MISSING = 1e30
"""Floats from here on stand for pixels without a value, as maps have them."""
OVERSHOOT = 1 / 8
"""Fraction of black to white by which a filter may take floats beyond either."""


def to_mode(image: Image.Image, mode: Mode) -> Image.Image:
    """Convert any of Pillow's modes to RGB or grey, as a viewer would show it."""
    if image.mode in PLAIN and "transparency" not in image.info:
        return image if image.mode == mode else image.convert(mode)
    kind = "I;16" if image.mode.startswith("I;16") else image.mode
    ends = _ends(image, kind) if kind in WHITE else (0.0, 255.0)
    converted, top = Image.new(mode, image.size), 0
    for strip in _strips(image):
        converted.paste(_converted(strip, mode, ends), (0, top))
        top += strip.height
    return converted


def _strips(image: Image.Image) -> Iterator[Image.Image]:
    rows = max(1, STRIP // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def _ends(image: Image.Image, kind: str) -> tuple[float, float]:
    """Return the values of a wide grey picture that become black and white.

    They are a convention's if the picture keeps to it and uses enough of it. Else they are the picture's own extremes: values of
    12 bits, of −1…1 and depths keep their steps.
    """
    ends = [end for part in map(np.asarray, _strips(image)) for end in _extremes(part[np.abs(part) < MISSING])]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    over = OVERSHOOT if kind == "F" else 0
    held = [white for white in WHITE[kind] if low >= -over * white and high <= (1 + over) * white]
    used = [white for white in held if high - low >= LEAST_USED * white]
    if used:
        return min(0.0, low), max(float(used[0]), high)
    return (low, high) if high > low else (0.0, float([*held, WHITE[kind][-1]][0]))


def _extremes(values: np.ndarray) -> list[float]:
    return [float(values.min()), float(values.max())] if values.size else []


def _converted(image: Image.Image, mode: Mode, ends: tuple[float, float]) -> Image.Image:
    """Convert some rows of a picture; of wide greys, ``ends`` are the values that become black and white."""
    if image.mode.startswith("I;16") and isinstance(image.info.get("transparency"), int):
        visible = np.asarray(image) != image.info["transparency"]
        image = _eight_bits(image, ends).convert("LA")
        image.putalpha(Image.fromarray(np.where(visible, np.uint8(255), np.uint8(0))))
    colour = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(colour, tuple) and max(colour) > 255:  # of 16 bits, beside pixels of which 8 are left
        image.info["transparency"] = tuple(value >> 8 for value in colour)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _eight_bits(image, ends)
    if image.mode in ("LAB", "HSV", "YCbCr", "CMYK"):
        image = image.convert("RGB")
    if image.mode in ("RGBa", "La"):
        image = image.convert("RGBA" if image.mode == "RGBa" else "LA")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _eight_bits(image: Image.Image, ends: tuple[float, float]) -> Image.Image:
    """Convert wide greys to 8 bits, black and white at ``ends``; what is not a number becomes black."""
    low, high = ends
    with np.errstate(over="ignore"):
        scaled = (np.asarray(image).astype(np.float64) - low) / (high - low) * 255
    return Image.fromarray(np.clip(np.rint(np.nan_to_num(scaled)), 0, 255).astype(np.uint8))
