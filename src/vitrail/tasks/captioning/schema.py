"""JSON documents of a captioning server, for OpenAPI."""

from typing import Any

from pydantic import Field

from vitrail.deploy.server.images import ServerLimits
from vitrail.deploy.server.schema import Document


class CaptionFields(Document):
    """The fields of a request for captions, in addition to its images."""

    attention: bool = Field(False, description="Whether to return the attention for each word, too.")


class CaptionedWord(Document):
    """A word of a caption."""

    word: str = Field(examples=["dog"])
    score: float = Field(ge=0, le=1, examples=[0.93])
    """Probability of the word, given the words before it."""


class Looks(Document):
    """The attention for each word: the mean over all layers and heads."""

    rows: int
    columns: int
    seen: list[float] = Field(min_length=4, max_length=4, examples=[[0.125, 0.0, 0.875, 1.0]])
    """The part of the upright image that the model sees: left, top, right, bottom as fractions of its sides."""
    maps: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """A byte for every word, row and column, in this order; 255 is the maximum of each word's map."""


class ImageCaption(Document):
    """The caption of an image."""

    image: str = Field(examples=["dog.jpg"])
    """The file name of the image, or "image" if it has none."""
    caption: str = Field(examples=["A dog runs through the snow ."])
    score: float
    """Log-probability of the caption."""
    words: list[CaptionedWord]
    attention: Looks | None
    """The attention; null if it was not requested."""


class Captions(Document):
    """The captions of the images of a request, in their order."""

    captions: list[ImageCaption]


class CaptionModel(Document):
    """The captioning model."""

    name: str = Field(examples=["captions"])
    engine: str = Field(examples=["torch fp32"])
    vocabulary: int
    """Size of the vocabulary."""
    beams: int
    """Beam width."""
    attention: bool
    """Whether the model has attention."""
    preparation: dict[str, Any]
    """The preparation of images."""
    limits: ServerLimits
