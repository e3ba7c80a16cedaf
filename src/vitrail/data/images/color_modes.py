"""Conversion of Pillow's colour modes to RGB or grey, with a few bytes of memory per pixel even for 16 and 32 bits."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from PIL import Image

Mode = Literal["RGB", "L"]

PLAIN = ("1", "L", "P", "RGB", "RGBX")
"""Modes that Pillow itself converts as a viewer would show them, for images without transparency."""
STRIP = 2**18
"""Number of pixels converted at a time in other modes, since the conversion makes several copies."""
WHITE = {"F": (1, 255), "I": (255, 65_535), "I;16": (65_535,)}
"""Conventional values of white, ascending, in floats (F), 32-bit integers (I) and 16-bit integers (I;16)."""
LEAST_USED = 1 / 4
"""Least fraction of the range black to white that an image must use for a convention to apply: else 64 greys would be left."""
MISSING = 1e30
"""Floats from this value on stand for pixels without a value, as in maps."""
OVERSHOOT = 1 / 8
"""Fraction of the range by which floats may exceed black or white, as after a filter."""


def to_mode(image: Image.Image, mode: Mode) -> Image.Image:
    """Convert an image of any of Pillow's modes to RGB or grey, as a viewer would show it."""
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
    """Return the values that become black and white in a grey image of 16 or 32 bits.

    They follow the convention `WHITE` if the image's values fit it and use enough of its range. Otherwise they are the image's
    minimum and maximum, so that values of 12 bits, values of −1…1 and depth maps keep their detail.
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
    """Convert some rows of an image; ``ends`` are the values of black and white for greys of 16 or 32 bits."""
    if image.mode.startswith("I;16") and isinstance(image.info.get("transparency"), int):
        visible = np.asarray(image) != image.info["transparency"]
        image = _eight_bits(image, ends).convert("LA")
        image.putalpha(Image.fromarray(np.where(visible, np.uint8(255), np.uint8(0))))
    colour = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(colour, tuple) and max(colour) > 255:  # 16 bits, where Pillow's pixels have 8
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
    """Convert greys to 8 bits; ``ends`` become 0 and 255, and NaN becomes 0."""
    low, high = ends
    with np.errstate(over="ignore"):
        scaled = (np.asarray(image).astype(np.float64) - low) / (high - low) * 255
    return Image.fromarray(np.clip(np.rint(np.nan_to_num(scaled)), 0, 255).astype(np.uint8))
