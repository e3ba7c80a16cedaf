"""The documents that every server answers with, and requests of images, as OpenAPI describes them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vitrail.deploy.server.http import problems
from vitrail.deploy.server.http.forms import FORM, RAW
from vitrail.deploy.server.http.limits import Limits


class Document(BaseModel):
    """Base of all of them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ServerLimits(Document):
    """What a request may ask for."""

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


class Status(Document):
    """How the server is."""

    status: str = Field(examples=["ready"])
    workers: int = Field(description="Processes that answer.", examples=[2])
    workers_wanted: int = Field(description="Processes that there are when all is well.", examples=[2])


class ProblemDocument(Document):
    """An error, as RFC 9457 has it."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Too Many Requests"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["the server is busy"])
    """What happened."""
    hint: str | None = None
    """What to do."""
    errors: list[dict[str, Any]] | None = None
    """What is wrong with each image or parameter."""


FILE = {"type": "string", "format": "binary", "contentMediaType": RAW}
KINDS = ("image/jpeg", "image/png", "image/webp", "image/bmp", "image/gif", RAW)
"""Of a body that is an image."""


def image_request(description: str, **parts: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request of images, or of a form with these parts, of which it needs the first."""
    form = {"type": "object", "properties": parts, "required": [next(iter(parts))]}
    content = {**{kind: {"schema": FILE} for kind in KINDS}, FORM: {"schema": form}}
    description = f"An image, or a form with {description}; compressed no further."
    return {"requestBody": {"required": True, "description": description, "content": content}}


IMAGES = image_request("one file or several", images={"type": "array", "items": FILE, "minItems": 1})
REASONS = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    403: "A page of another site asks.",
    408: "The body did not come in time.",
    413: "The body is too large, or there is too much in it.",
    415: "The body is not of a type that is read here.",
    421: "The Host is not this server.",
    422: "Something cannot be read, or a parameter is wrong: all that is wrong, and nothing is answered.",
    429: "The queue is full.",
    500: "The model failed.",
    501: "The model's attention cannot be seen.",
    503: "The server is shutting down.",
    504: "There was no answer before the deadline.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an operation, beside those that any may have."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({400, 401, 421, *statuses}):
        responses[status] = {"description": REASONS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}
    if 429 in responses:
        seconds = {"description": "Seconds to wait.", "schema": {"type": "string"}}
        responses[429]["headers"] = {"Retry-After": seconds}
    return responses
