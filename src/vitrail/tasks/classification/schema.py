"""The documents of a server of labels, as OpenAPI describes them."""

from typing import Any

from pydantic import Field

from vitrail.deploy.server.images import ServerLimits
from vitrail.deploy.server.schema import Document

MOST_LABELS = 100


class LabelFields(Document):
    """The fields of a request for labels beside its images."""

    top: int = Field(5, ge=1, le=MOST_LABELS, description="Labels per image.")


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
    """Where an image may have several labels, or none, those whose probabilities reach their thresholds, best first."""


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
    """How much each patch speaks for the best label, a byte for every row and column; null where that is not computed."""


class Model(Document):
    """The model that predicts."""

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
