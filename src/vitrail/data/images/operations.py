"""Operations on pictures that augmentation chooses from. RGB and grey; size and mode stay.

Each is a function of the picture, an amount in units of its own, of which 0 changes nothing (`auto_contrast` and
`equalize` have no amount), and the colour that fills what comes into view.
"""

import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Colour = tuple[int, ...]
"""One value of 0…255 per channel."""
Operation = Callable[[Image.Image, float, Colour], Image.Image]
Matrix = tuple[float, float, float, float, float, float]
"""a, b, c, d, e, f: takes the place (x, y) to (a x + b y + c, d x + e y + f)."""


def _turned(amount: float, width: int, height: int) -> Matrix:
    cos, sin = math.cos(math.radians(amount)), math.sin(math.radians(amount))
    x, y = width / 2, height / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


BACK: dict[str, Callable[[float, int, int], Matrix]] = {
    "rotate": _turned,
    "shear_x": lambda amount, width, height: (1, amount, -amount * height / 2, 0, 1, 0),
    "shear_y": lambda amount, width, height: (1, 0, 0, amount, 1, -amount * width / 2),
    "translate_x": lambda amount, width, height: (1, 0, -amount, 0, 1, 0),
    "translate_y": lambda amount, width, height: (1, 0, 0, 0, 1, -amount),
}
"""For the operations that move pixels: what takes a place in the result back to its place in a picture of some width and
height. Pillow's own rotation, which copies pixels at right angles, goes by the same."""


def identity(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Nothing changes."""
    return image


def auto_contrast(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Every channel stretched to 0…255."""
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Every channel's values spread so that all are equally frequent."""
    return ImageOps.equalize(image)


def rotate(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Turned about the centre, ``amount`` degrees anticlockwise."""
    return image.rotate(amount, Image.Resampling.BILINEAR, fillcolor=_pillow_colour(fill))


def posterize(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """The ``amount`` lowest of the 8 bits of every value set to 0; one bit stays at least."""
    return ImageOps.posterize(image, max(1, 8 - round(amount)))


def solarize(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """The brightest values inverted, those in the upper ``amount`` (0…1) of the scale."""
    return ImageOps.solarize(image, max(0, round(256 * (1 - amount))))


def saturation(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """More or less colour: -1 is grey, 1 is double."""
    return ImageEnhance.Color(image).enhance(max(0.0, 1 + amount))


def contrast(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """More or less distance from the mean grey: -1 is nothing else, 1 is double."""
    return ImageEnhance.Contrast(image).enhance(max(0.0, 1 + amount))


def brightness(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Brighter or darker: -1 is black, 1 is double."""
    return ImageEnhance.Brightness(image).enhance(max(0.0, 1 + amount))


def sharpness(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Sharper or softer: -1 is the picture smoothed, 1 as far the other way."""
    return ImageEnhance.Sharpness(image).enhance(max(0.0, 1 + amount))


def shear_x(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Rows moved sideways by ``amount`` times their distance from the middle row."""
    return _moved(image, "shear_x", amount, fill)


def shear_y(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Columns moved up or down by ``amount`` times their distance from the middle column."""
    return _moved(image, "shear_y", amount, fill)


def translate_x(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Moved to the right by ``amount`` pixels."""
    return _moved(image, "translate_x", amount, fill)


def translate_y(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Moved down by ``amount`` pixels."""
    return _moved(image, "translate_y", amount, fill)


def hue(image: Image.Image, amount: float, fill: Colour) -> Image.Image:
    """Colours turned by ``amount`` of the colour circle; grey stays."""
    turn = round(256 * amount) % 256
    if image.mode == "L" or not turn:
        return image
    pixels = np.array(image.convert("HSV"))
    pixels[..., 0] += np.uint8(turn)  # goes round: 255 is next to 0
    return Image.fromarray(pixels, "HSV").convert("RGB")


def _moved(image: Image.Image, name: str, amount: float, fill: Colour) -> Image.Image:
    back, colour = BACK[name](amount, *image.size), _pillow_colour(fill)
    return image.transform(image.size, Image.Transform.AFFINE, back, Image.Resampling.BILINEAR, fillcolor=colour)


def _pillow_colour(colour: Colour) -> int | Colour:
    return colour if len(colour) > 1 else colour[0]


POLICY: dict[str, Operation] = {
    "identity": identity,
    "auto_contrast": auto_contrast,
    "equalize": equalize,
    "rotate": rotate,
    "posterize": posterize,
    "solarize": solarize,
    "saturation": saturation,
    "contrast": contrast,
    "brightness": brightness,
    "sharpness": sharpness,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
}
"""What RandAugment and TrivialAugment choose from, the same fourteen in both papers."""

OPERATIONS: dict[str, Operation] = {**POLICY, "hue": hue}
"""All of them."""

BOTH_WAYS = set(POLICY) - {"identity", "auto_contrast", "equalize", "posterize", "solarize"}
"""Those whose amount may be negative."""


def randaugment_limits(width: int, height: int) -> dict[str, float]:
    """The amounts of magnitude 10 in RandAugment (Cubuk et al. 2020, https://arxiv.org/abs/1909.13719).

    The ranges are AutoAugment's (Cubuk et al. 2019, https://arxiv.org/abs/1805.09501), translation as a share of
    the side: 150 of 331 pixels.
    """
    return {
        "rotate": 30,
        "posterize": 4,
        "solarize": 1,
        "saturation": 0.9,
        "contrast": 0.9,
        "brightness": 0.9,
        "sharpness": 0.9,
        "shear_x": 0.3,
        "shear_y": 0.3,
        "translate_x": 150 / 331 * width,
        "translate_y": 150 / 331 * height,
    }


def trivial_limits(width: int, height: int) -> dict[str, float]:
    """The largest amounts of TrivialAugment's wide space (Müller & Hutter 2021, https://arxiv.org/abs/2103.10158).

    Translation goes up to 32 pixels whatever the size, but not beyond the picture.
    """
    return {
        "rotate": 135,
        "posterize": 6,
        "solarize": 1,
        "saturation": 0.99,
        "contrast": 0.99,
        "brightness": 0.99,
        "sharpness": 0.99,
        "shear_x": 0.99,
        "shear_y": 0.99,
        "translate_x": min(32, width),
        "translate_y": min(32, height),
    }
