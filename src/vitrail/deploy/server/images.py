"""Functions that servers of image models share: request descriptions, a black image, and attention maps."""

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
"""A function from one image's prepared pixels, uint8 (1, C, H, W), to attention maps (layers, heads, rows, columns) or to one
map (rows, columns)."""
EXPORTED = "an exported model does not return its attention"
"""The reason why a server of an exported model has no attention maps."""
FILE = {"type": "string", "format": "binary", "contentMediaType": RAW}
KINDS = ("image/jpeg", "image/png", "image/webp", "image/bmp", "image/gif", RAW)
"""Content-Types of a body that is an image."""


class ServerLimits(Document):
    """The limits of a request."""

    body: int
    """Most bytes of the body."""
    images: int
    """Most images."""
    pixels: int
    """Most pixels of an image."""
    deadline: float
    """Most seconds to the response."""


def image_limits(limits: Limits, items: str) -> dict[str, float]:
    """Return the limits of a request with images; ``items`` is the name of the limit on images or people."""
    return {"body": limits.body, items: limits.items, "pixels": limits.pixels, "deadline": limits.deadline}


def image_request(form: str, **parts: dict[str, Any]) -> dict[str, Any]:
    """Return OpenAPI's description of a body that is an image, or a form with these parts; the first is required."""
    schema = {"type": "object", "properties": parts, "required": [next(iter(parts))]}
    content = {**{kind: {"schema": FILE} for kind in KINDS}, FORM: {"schema": schema}}
    description = f"An image, or a form with {form}; compressed no further."
    return {"requestBody": {"required": True, "description": description, "content": content}}


IMAGES = image_request("one file or several", images={"type": "array", "items": FILE, "minItems": 1})


def image_tensors(predictor: Predictor, output: str, *sides: int) -> TensorModel:
    """Return a network for the Open Inference Protocol; its output has the shape (B, …) with ``sides`` after the batch."""
    preparation = predictor.preparation
    return TensorModel(predictor.network, (preparation.channels, *preparation.image_size), output, (-1, *sides))


def black(preparation: Preparation) -> np.ndarray:
    """Return the prepared pixels of a black image, uint8 (C, H, W)."""
    return np.zeros((preparation.channels, *preparation.image_size), np.uint8)


def framed(preparation: Preparation, content: bytes) -> tuple[np.ndarray, list[float]]:
    """Return the prepared pixels of an image file, and the part of the image that they show; raises `DataError`.

    The part is left, top, right and bottom, as fractions of the sides of the upright image.
    """
    image, seen = preparation.framed(content)
    return to_pixels(image), list(seen)


def encoded(maps: Tensor) -> dict[str, Any]:
    """Return maps (layers, heads, rows, columns) as JSON values: base64 of one byte per patch, 255 for the map's maximum."""
    largest = maps.amax(dim=(2, 3))
    scaled = maps / largest[..., None, None].clamp(min=torch.finfo(torch.float32).tiny)
    content = (255 * scaled).round().to(torch.uint8).numpy().tobytes()
    sides = dict(zip(("layers", "heads", "rows", "columns"), maps.shape, strict=True))
    return {**sides, "largest": largest.tolist(), "maps": base64.b64encode(content).decode()}
