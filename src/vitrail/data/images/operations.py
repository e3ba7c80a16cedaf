"""Image operations for augmentation, on RGB and grey; they keep size and mode.

Each takes the image, an amount in its own unit (0 changes nothing), and the colour that fills pixels from outside the image.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Colour = tuple[int, ...]
"""One value 0…255 for each channel."""
Operation = Callable[[Image.Image, float, Colour], Image.Image]
Matrix = tuple[float, float, float, float, float, float]
"""a, b, c, d, e, f of an affine map: (x, y) to (a x + b y + c, d x + e y + f)."""


def _rotation(amount: float, width: int, height: int) -> Matrix:
    cos, sin = math.cos(math.radians(amount)), math.sin(math.radians(amount))
    x, y = width / 2, height / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


BACK: dict[str, Callable[[float, int, int], Matrix]] = {
    "rotate": _rotation,
    "shear_x": lambda amount, width, height: (1, amount, -amount * height / 2, 0, 1, 0),
    "shear_y": lambda amount, width, height: (1, 0, 0, amount, 1, -amount * width / 2),
    "translate_x": lambda amount, width, height: (1, 0, -amount, 0, 1, 0),
    "translate_y": lambda amount, width, height: (1, 0, 0, 0, 1, -amount),
}
"""For operations that move pixels: functions from an amount, width and height to the map from a position in the result to the
position in the image. Pillow's rotation uses the same map."""


def _enhanced(enhancer: Any) -> Operation:
    return lambda image, amount, fill: enhancer(image).enhance(max(0.0, 1 + amount))


def _moved(name: str) -> Operation:
    def operation(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
        back, colour = BACK[name](amount, *image.size), pillow_colour(fill)
        return image.transform(image.size, Image.Transform.AFFINE, back, Image.Resampling.BILINEAR, fillcolor=colour)

    return operation


def _hue(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    turn = round(256 * amount) % 256
    if image.mode == "L" or not turn:
        return image
    pixels = np.array(image.convert("HSV"))
    pixels[..., 0] += np.uint8(turn)  # wraps around: 255 is next to 0
    return Image.fromarray(pixels, "HSV").convert("RGB")


def pillow_colour(colour: Colour) -> int | Colour:
    """Return a colour as Pillow expects it: a number for grey."""
    return colour if len(colour) > 1 else colour[0]


POLICY: dict[str, Operation] = {
    "identity": lambda image, amount, fill: image,
    "auto_contrast": lambda image, amount, fill: ImageOps.autocontrast(image),
    "equalize": lambda image, amount, fill: ImageOps.equalize(image),
    "rotate": lambda image, amount, fill: image.rotate(amount, Image.Resampling.BILINEAR, fillcolor=pillow_colour(fill)),
    "posterize": lambda image, amount, fill: ImageOps.posterize(image, max(1, 8 - round(amount))),
    "solarize": lambda image, amount, fill: ImageOps.solarize(image, max(0, round(256 * (1 - amount)))),
    "saturation": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    **{name: _moved(name) for name in ("shear_x", "shear_y", "translate_x", "translate_y")},
}
"""The fourteen operations of RandAugment and TrivialAugment. Units of their amounts: ``rotate`` in degrees anticlockwise;
``posterize`` in bits that are set to 0; ``solarize`` as the upper fraction of 0…255 that is inverted; ``saturation``,
``contrast``, ``brightness`` and ``sharpness`` as a factor minus 1, in -1…1; shears as a tangent; translations in pixels."""

OPERATIONS: dict[str, Operation] = {
    **POLICY,
    "hue": _hue,
    "blur": lambda image, amount, fill: image.filter(ImageFilter.GaussianBlur(amount)),
}
"""All operations; ``hue`` shifts colours by a fraction of the colour circle, and leaves grey unchanged; ``blur`` has a deviation
in pixels."""

BOTH_WAYS = set(POLICY) - {"identity", "auto_contrast", "equalize", "posterize", "solarize"}
"""Operations whose amount may be negative."""
ENHANCED = ("saturation", "contrast", "brightness", "sharpness")


def randaugment_limits(width: int, height: int) -> dict[str, float]:
    """Return the amount of each operation at RandAugment's magnitude 10 (Cubuk et al. 2020, https://arxiv.org/abs/1909.13719).

    The ranges are those of AutoAugment (Cubuk et al. 2019, https://arxiv.org/abs/1805.09501); its translation of 150 of 331
    pixels is scaled to the image's side.
    """
    moved = {"shear_x": 0.3, "shear_y": 0.3, "translate_x": 150 / 331 * width, "translate_y": 150 / 331 * height}
    return {"rotate": 30, "posterize": 4, "solarize": 1, **dict.fromkeys(ENHANCED, 0.9), **moved}


def trivial_limits(width: int, height: int) -> dict[str, float]:
    """Return the largest amounts of TrivialAugment's wide space (Müller & Hutter 2021, https://arxiv.org/abs/2103.10158).

    Translation is at most 32 pixels at any image size, and at most the image's side.
    """
    moved = {"translate_x": min(32, width), "translate_y": min(32, height)}
    return {"rotate": 135, "posterize": 6, "solarize": 1, **dict.fromkeys((*ENHANCED, "shear_x", "shear_y"), 0.99), **moved}
