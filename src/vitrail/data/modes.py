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
GREY = np.rint(np.arange(2**16) / 257).astype(np.uint8)
"""Of each value of 16 bits its value of 8: 65535 is 255."""


def to_mode(image: Image.Image, mode: Mode) -> Image.Image:
    """Any of Pillow's modes to RGB or grey, as a viewer would show it."""
    if image.mode in PLAIN and "transparency" not in image.info:
        return image if image.mode == mode else image.convert(mode)
    largest = max(map(_largest, _strips(image)), default=0.0) if image.mode in ("I", "F") else 0.0
    converted, top = Image.new(mode, image.size), 0
    for strip in _strips(image):
        converted.paste(_converted(strip, mode, largest), (0, top))
        top += strip.height
    return converted


def _strips(image: Image.Image) -> Iterator[Image.Image]:
    """The picture in whole rows, from its top."""
    rows = max(1, STRIP // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def _largest(image: Image.Image) -> float:
    return float(np.nan_to_num(np.asarray(image)).max(initial=0))


def _converted(image: Image.Image, mode: Mode, largest: float) -> Image.Image:
    """Some rows of a picture of which ``largest`` is the largest value."""
    if image.mode.startswith("I;16") and isinstance(image.info.get("transparency"), int):
        visible = np.asarray(image) != image.info["transparency"]
        image = _eight_bits(image, largest).convert("LA")
        image.putalpha(Image.fromarray(np.where(visible, np.uint8(255), np.uint8(0))))
    colour = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(colour, tuple) and max(colour) > 255:  # of 16 bits, beside pixels of which 8 are left
        image.info["transparency"] = tuple(value >> 8 for value in colour)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _eight_bits(image, largest)
    if image.mode in ("LAB", "HSV", "YCbCr", "CMYK"):
        image = image.convert("RGB")
    if image.mode in ("RGBa", "La"):
        image = image.convert("RGBA" if image.mode == "RGBa" else "LA")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _eight_bits(image: Image.Image, largest: float) -> Image.Image:
    """Wide grey modes to 8 bits: floats up to 1 by 255, integers beyond 8 bits as 16-bit; the rest as it stands."""
    values = np.asarray(image)
    if image.mode == "F":
        scaled = np.nan_to_num(values.astype(np.float64)) * (255 if largest <= 1 else 1)
        return Image.fromarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))
    if image.mode == "I" and largest <= 255:
        return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
    return Image.fromarray(GREY[np.clip(values, 0, 2**16 - 1)])
