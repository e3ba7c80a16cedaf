"""What servers of images share: their requests, a black image, and maps of where a model looked."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.data.images.plan import to_pixels
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.server.http.forms import FORM, RAW
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.operation import TensorModel
from vitrail.deploy.server.schema import Document

Look = Callable[[Tensor], Tensor]
"""Maps one image's prepared pixels, uint8 (1, C, H, W), to maps (layers, heads, rows, columns), or to one map (rows, columns)."""
EXPORTED = "an exported model keeps its attention to itself"
"""Why the attention of a graph cannot be seen."""
FILE = {"type": "string", "format": "binary", "contentMediaType": RAW}
KINDS = ("image/jpeg", "image/png", "image/webp", "image/bmp", "image/gif", RAW)
"""Of a body that is an image."""


class ServerLimits(Document):
    """The limits of a request."""

    body: int
    """Bytes of its body."""
    images: int
    """Images in it."""
    pixels: int
    """Pixels of each."""
    deadline: float
    """Seconds to its answer."""


def image_limits(limits: Limits, items: str) -> dict[str, float]:
    """Return the limits of a request of images, of which ``items`` are counted."""
    return {"body": limits.body, items: limits.items, "pixels": limits.pixels, "deadline": limits.deadline}


def image_request(form: str, **parts: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request of an image, or of a form with these parts, of which it needs the first."""
    schema = {"type": "object", "properties": parts, "required": [next(iter(parts))]}
    content = {**{kind: {"schema": FILE} for kind in KINDS}, FORM: {"schema": schema}}
    description = f"An image, or a form with {form}; compressed no further."
    return {"requestBody": {"required": True, "description": description, "content": content}}


IMAGES = image_request("one file or several", images={"type": "array", "items": FILE, "minItems": 1})


def image_tensors(predictor: Predictor, output: str, *sides: int) -> TensorModel:
    """Return the network of a predictor of images, whose output has these sides behind the batch."""
    preparation = predictor.preparation
    return TensorModel(predictor.network, (preparation.channels, *preparation.image_size), output, (-1, *sides))


def black(preparation: Preparation) -> np.ndarray:
    """Return the pixels of a black image as the model takes them, uint8 (C, H, W)."""
    return np.zeros((preparation.channels, *preparation.image_size), np.uint8)


def framed(preparation: Preparation, content: bytes) -> tuple[np.ndarray, list[float]]:
    """Return the pixels of an image file as the model takes them, and the part of the image that they show.

    That is left, top, right and bottom, as fractions of the sides of the upright image. Raises `DataError`.
    """
    image, seen = preparation.framed(content)
    return to_pixels(image), list(seen)


def encoded(maps: Tensor) -> dict[str, Any]:
    """Return maps (layers, heads, rows, columns) with one byte for each patch; 255 stands for the largest value of its map."""
    largest = maps.amax(dim=(2, 3))
    scaled = maps / largest[..., None, None].clamp(min=torch.finfo(torch.float32).tiny)
    content = (255 * scaled).round().to(torch.uint8).numpy().tobytes()
    sides = dict(zip(("layers", "heads", "rows", "columns"), maps.shape, strict=True))
    return {**sides, "largest": largest.tolist(), "maps": base64.b64encode(content).decode()}
