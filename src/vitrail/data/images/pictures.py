"""Images passed in Python: paths, encoded bytes, or pixels of Pillow, NumPy and torch; one or many."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.data.images.decode import Source
from vitrail.data.readers.image_names import URL
from vitrail.errors import DataError
from vitrail.files import path_of

Picture = str | Path | bytes | bytearray | IO[bytes] | Image.Image | np.ndarray | Tensor
"""One image: a path, the content of a file, an open file, or pixels; an array or tensor may also be a batch.

Pixels are uint8, or floats of 0…1. Shapes are (H, W), (H, W, 3) or (B, H, W, 3) for NumPy, and (H, W), (3, H, W) or (B, 3, H, W)
for torch. Instead of 3 channels there may be 1 (grey) or 4 (with opacity).
"""
COLOURS = (1, 3, 4)
SHAPES = {np.ndarray: "(H, W), (H, W, 3) or a batch (B, H, W, 3)", Tensor: "(H, W), (3, H, W) or a batch (B, 3, H, W)"}


def pictures_of(images: Picture | Iterable[Picture]) -> list[Source]:
    """Convert one image, a batch or several images to a list of sources for `vitrail.data.images.decode`.

    Raises:
        DataError: a value is no image; the message names its type or shape.
    """
    if isinstance(images, np.ndarray | Tensor):
        return [_picture(image, images) for image in (images if images.ndim == 4 else [images])]
    single = isinstance(images, str | Path | bytes | bytearray | Image.Image | Mapping) or hasattr(images, "read")
    if single or not isinstance(images, Iterable):
        return [_one(images)]
    return [_one(image) for image in images]


def _one(image: Any) -> Source:
    if isinstance(image, str) and URL.match(image):
        raise DataError(f"{image!r} is a URL, and nothing is downloaded", where="images", hint="download it, and give the file")
    if isinstance(image, str | Path):
        return path_of(image)
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, np.ndarray | Tensor):
        return _picture(image, image)
    if not hasattr(image, "read"):
        hint = "give a path, bytes, an open file, a Pillow image, a NumPy array or a tensor; or a list of them"
        raise DataError(f"a {type(image).__name__} is no image", where="images", hint=hint)
    content = image.read()
    if not isinstance(content, bytes):
        raise DataError("a file open as text is no image", where="images", hint="open it with mode 'rb'")
    return content


def _picture(pixels: np.ndarray | Tensor, given: np.ndarray | Tensor) -> Source:
    """Convert one image to a source, from uint8 (H, W) or (H, W, 3) or a Pillow image; errors name the shape of ``given``."""
    array = pixels if isinstance(pixels, np.ndarray) else _as_array(pixels)
    if array.ndim not in (2, 3) or not array.size or (array.ndim == 3 and array.shape[2] not in COLOURS):
        kind = "a tensor" if isinstance(given, Tensor) else "an array"
        shapes = SHAPES[Tensor if isinstance(given, Tensor) else np.ndarray]
        raise DataError(f"{kind} of shape {tuple(given.shape)} is no image", where="images", hint=f"give {shapes}, or a list")
    array = _bytes_of(array)
    if array.ndim == 3 and array.shape[2] == 1:
        return array[..., 0]
    return Image.fromarray(array) if array.ndim == 3 and array.shape[2] == 4 else array


def _as_array(pixels: Tensor) -> np.ndarray:
    pixels = pixels.detach().cpu()
    pixels = pixels.float() if pixels.dtype in (torch.bfloat16, torch.float16) else pixels
    return (pixels.movedim(0, -1) if pixels.ndim == 3 else pixels).numpy()


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """Convert floats of 0…1 to uint8; raises `DataError` for other ranges, such as normalized pixels."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        hint = "give uint8 of 0…255, or floats of 0…1"
        raise DataError(f"pixels of type {array.dtype} are no image", where="images", hint=hint)
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):
        hint = "give floats of 0…1 that are not normalized, or uint8 of 0…255"
        raise DataError(f"pixels from {low:g} to {high:g} are no image", where="images", hint=hint)
    return np.rint(array * 255).astype(np.uint8)
