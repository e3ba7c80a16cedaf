"""The documents that the server answers with, as OpenAPI describes them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vitrail.deploy.server import problems
from vitrail.deploy.server.reading import FORM, RAW


class Document(BaseModel):
    """Base of all of them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Prediction(Document):
    """A label with its probability."""

    label: str = Field(examples=["tabby cat"])
    score: float = Field(ge=0, le=1, examples=[0.97])


class ImagePredictions(Document):
    """The answer for an image."""

    image: str = Field(examples=["cat.jpg"])
    """The name of its file, or "image" where it has none."""
    predictions: list[Prediction]
    """Best first."""
    labels: list[str] | None = None
    """Where an image may have several labels, those whose probabilities reach their thresholds, best first."""


class Predictions(Document):
    """The answers for the images of a request, in their order."""

    predictions: list[ImagePredictions]


class Attention(Document):
    """Where every head of every layer looks, for what the answer is read from."""

    layers: int
    heads: int
    rows: int
    columns: int
    seen: list[float] = Field(min_length=4, max_length=4, examples=[[0.125, 0.0, 0.875, 1.0]])
    """The part of the upright picture that the model sees: left, top, right, bottom as shares of its sides."""
    largest: list[list[float]]
    """The largest share of attention on one patch, by layer and head."""
    maps: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """A byte for every layer, head, row and column, in this order; 255 is the largest of its map."""
    relevance: str | None = Field(json_schema_extra={"contentEncoding": "base64"})
    """How much each patch speaks for the best label, a byte for every row and column; null where that cannot be told."""


class ServerLimits(Document):
    """What a request may ask for."""

    body: int
    """Bytes of its body."""
    images: int
    """Images in it."""
    deadline: float
    """Seconds to its answer."""


class Model(Document):
    """What answers."""

    name: str = Field(examples=["flowers"])
    engine: str = Field(examples=["torch fp32"])
    labels: list[str]
    """By index."""
    multi_label: bool
    """Whether an image may have several labels, or none."""
    attention: bool
    """Whether /attention answers."""
    unseen: str
    """Why it does not; empty where it does."""
    preparation: dict[str, Any]
    """How an image becomes what the model takes."""
    limits: ServerLimits


class Status(Document):
    """How the server is."""

    status: str = Field(examples=["ready"])


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
IMAGES = {
    "requestBody": {
        "required": True,
        "description": "An image, or a form with one file or several; compressed no further.",
        "content": {
            **{kind: {"schema": FILE} for kind in ("image/jpeg", "image/png", "image/webp", "image/bmp", "image/gif", RAW)},
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {"images": {"type": "array", "items": FILE, "minItems": 1}},
                    "required": ["images"],
                }
            },
        },
    }
}
REASONS = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    403: "A page of another site asks.",
    408: "The body did not come in time.",
    413: "The body is too large, or has too many images.",
    415: "The body is no image by its own account.",
    421: "The Host is not this server.",
    422: "An image cannot be read, or a parameter is wrong: all that is wrong, and nothing is answered.",
    429: "The queue is full.",
    500: "The model failed.",
    501: "The model's attention cannot be seen.",
    503: "The server is shutting down.",
    504: "There was no answer before the deadline.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of an operation, beside those that any may have."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({400, 401, 421, *statuses}):
        found[status] = {"description": REASONS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}
    if 429 in found:
        seconds = {"description": "Seconds to wait.", "schema": {"type": "string"}}
        found[429]["headers"] = {"Retry-After": seconds}
    return found
