"""Files to pictures, safely: known formats only, the size checked before a pixel is decoded."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vitrail.errors import DataError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
MAX_PIXELS = 100_000_000
"""Refuse larger images: 100 megapixels take 300 MB in memory."""

Mode = Literal["RGB", "L"]


def decode(source: Path | bytes | Image.Image, *, channels: int = 3, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image upright, in RGB (``channels`` 3) or grey (``channels`` 1).

    The first frame of an animation; turned as its EXIF orientation says; transparency over white; 16 bits to 8.

    Raises:
        DataError: not an image of a known format, damaged, truncated, or larger than ``max_pixels``.
    """
    with _explained(source):
        image = source if isinstance(source, Image.Image) else _open(source)
        _check_size(image, max_pixels)
        return to_mode(ImageOps.exif_transpose(image), "L" if channels == 1 else "RGB")


def check_head(source: Path | Image.Image, *, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse what `decode` would refuse without decoding a pixel: another format, a damaged head, too large."""
    if isinstance(source, Path):
        with _explained(source), _open(source) as image:
            _check_size(image, max_pixels)


@contextmanager
def _explained(source: Path | bytes | Image.Image) -> Iterator[None]:
    """Whatever goes wrong inside is a `DataError` that names the file."""
    name = source if isinstance(source, Path) else "image"
    try:
        yield
    except DataError as error:
        raise DataError(error.what, where=name, hint=error.hint) from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise DataError(
            f"cannot read the image: {_reason(error)}",
            where=name,
            hint=f"give a {', '.join(FORMATS)} file, or remove it",
        ) from error


def _check_size(image: Image.Image, max_pixels: int) -> None:
    if not image.width * image.height:
        raise DataError("the image has no pixels", hint="remove it")
    if image.width * image.height > max_pixels:
        raise DataError(
            f"image of {image.width}×{image.height} pixels is over the limit of {max_pixels:,}", hint="make it smaller"
        )


def _open(source: Path | bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is our own
        return Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return str(error) or type(error).__name__


def to_mode(image: Image.Image, mode: Mode) -> Image.Image:
    """Any of Pillow's modes to RGB or grey, as a viewer would show it."""
    if image.mode.startswith("I;16") and isinstance(image.info.get("transparency"), int):
        visible = np.asarray(image) != image.info["transparency"]
        image = _eight_bits(image).convert("LA")
        image.putalpha(Image.fromarray(np.where(visible, np.uint8(255), np.uint8(0))))
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _eight_bits(image)
    if image.mode in ("LAB", "HSV", "YCbCr", "CMYK"):
        image = image.convert("RGB")
    if image.mode in ("RGBa", "La"):
        image = image.convert("RGBA" if image.mode == "RGBa" else "LA")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert(mode)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Wide grey modes to 8 bits: floats up to 1 by 255, integers beyond 8 bits as 16-bit; the rest as it stands."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    if image.mode == "F":
        values = values * 255 if values.max(initial=0) <= 1 else values
    elif image.mode != "I" or values.max(initial=0) > 255:
        values = values / 257  # 65535 to 255
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))
