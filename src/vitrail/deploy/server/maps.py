"""Maps of where a model looked, as servers send them."""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitrail.data.images.plan import to_pixels
from vitrail.data.images.preparation import Preparation

Look = Callable[[Tensor], Tensor]
"""Maps one image's prepared pixels, uint8 (1, C, H, W), to maps (layers, heads, rows, columns), or to one map (rows, columns)."""
EXPORTED = "an exported model keeps its attention to itself"
"""Why the attention of a graph cannot be seen."""


class Framed(NamedTuple):
    """An image as the model takes it."""

    pixels: np.ndarray
    """uint8 (C, H, W)."""
    seen: list[float]
    """The part of the upright image that they show: left, top, right, bottom as fractions of its sides."""


def framed(preparation: Preparation, content: bytes) -> Framed:
    """Return the pixels of an image file, and the part of the image that they show; raises `DataError`."""
    image, seen = preparation.framed(content)
    return Framed(to_pixels(image), list(seen))


def encoded(maps: Tensor) -> dict[str, Any]:
    """Return maps (layers, heads, rows, columns) with one byte for each patch; 255 stands for the largest value of its map."""
    largest = maps.amax(dim=(2, 3))
    scaled = maps / largest[..., None, None].clamp(min=torch.finfo(torch.float32).tiny)
    content = (255 * scaled).round().to(torch.uint8).numpy().tobytes()
    sides = dict(zip(("layers", "heads", "rows", "columns"), maps.shape, strict=True))
    return {**sides, "largest": largest.tolist(), "maps": base64.b64encode(content).decode()}
