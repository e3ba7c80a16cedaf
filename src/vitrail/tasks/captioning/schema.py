"""The documents of a server that writes about images, as OpenAPI describes them."""

from typing import Any

from pydantic import Field

from vitrail.deploy.server.images import ServerLimits
from vitrail.deploy.server.schema import Document


class CaptionFields(Document):
    """The fields of a request for captions beside its images."""

    attention: bool = Field(False, description="Whether to tell where the model looked for each word, too.")


class CaptionedWord(Document):
    """A word of a caption."""

    word: str = Field(examples=["dog"])
    score: float = Field(ge=0, le=1, examples=[0.93])
    """Its probability behind the words before it."""


class Looks(Document):
    """Where the model looked for each word: the mean of all layers and heads of attention."""

    rows: int
    columns: int
    seen: list[float] = Field(min_length=4, max_length=4, examples=[[0.125, 0.0, 0.875, 1.0]])
    """The part of the upright picture that the model sees: left, top, right, bottom as shares of its sides."""
    maps: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """A byte for every word, row and column, in this order; 255 is the largest of its map."""


class ImageCaption(Document):
    """The caption of an image."""

    image: str = Field(examples=["dog.jpg"])
    """The name of its file, or "image" where it has none."""
    caption: str = Field(examples=["A dog runs through the snow ."])
    score: float
    """The logarithm of its probability."""
    words: list[CaptionedWord]
    attention: Looks | None
    """Null where it was not asked for."""


class Captions(Document):
    """The captions of the images of a request, in their order."""

    captions: list[ImageCaption]


class CaptionModel(Document):
    """The model that writes."""

    name: str = Field(examples=["captions"])
    engine: str = Field(examples=["torch fp32"])
    vocabulary: int
    """Tokens that it knows."""
    beams: int
    """Captions that are followed side by side."""
    attention: bool
    """Whether it can tell where it looked."""
    preparation: dict[str, Any]
    """How an image becomes what the model takes."""
    limits: ServerLimits
