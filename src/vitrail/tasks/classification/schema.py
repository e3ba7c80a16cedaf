"""The JSON documents of a server for classifiers, for OpenAPI."""

from typing import Any

from pydantic import Field

from vitrail.deploy.server.images import ServerLimits
from vitrail.deploy.server.schema import Document

MOST_LABELS = 100


class LabelFields(Document):
    """The fields of a request for labels, in addition to the images."""

    top: int = Field(5, ge=1, le=MOST_LABELS, description="Labels per image.")


class Prediction(Document):
    """A label with its probability."""

    label: str = Field(examples=["tabby cat"])
    score: float = Field(ge=0, le=1, examples=[0.97])


class ImagePredictions(Document):
    """The predictions for an image."""

    image: str = Field(examples=["cat.jpg"])
    """The name of the image's file; "image" if it has none."""
    predictions: list[Prediction]
    """Best first."""
    labels: list[str] | None = None
    """For a multi-label or rejecting model: the labels whose probabilities reach their thresholds, best first."""


class Predictions(Document):
    """The predictions for the images of a request, in their order."""

    predictions: list[ImagePredictions]


class Attention(Document):
    """The attention of every head in every layer, from the token that the prediction is read from."""

    layers: int
    heads: int
    rows: int
    columns: int
    seen: list[float] = Field(min_length=4, max_length=4, examples=[[0.125, 0.0, 0.875, 1.0]])
    """The part of the upright image that the model sees: left, top, right, bottom as fractions of its sides."""
    largest: list[list[float]]
    """The largest attention weight on one patch, by layer and head."""
    maps: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """A byte for every layer, head, row and column, in this order; 255 is the largest value of each map."""
    relevance: str | None = Field(json_schema_extra={"contentEncoding": "base64"})
    """The relevance of each patch for the best label, a byte for every row and column; null if it is not computed."""


class Model(Document):
    """The model that predicts."""

    name: str = Field(examples=["flowers"])
    engine: str = Field(examples=["torch fp32"])
    labels: list[str]
    """The labels, by index."""
    multi_label: bool
    """Whether an image may have several labels, or none."""
    attention: bool
    """Whether /attention is available."""
    unseen: str
    """The reason why /attention is not available; empty if it is."""
    preparation: dict[str, Any]
    """The preparation of images for the model."""
    limits: ServerLimits
