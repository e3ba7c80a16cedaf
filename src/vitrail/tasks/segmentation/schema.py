"""JSON documents of a server of segmenters, for OpenAPI."""

from typing import Any

from pydantic import ConfigDict, Field

from vitrail.deploy.server.images import ServerLimits
from vitrail.deploy.server.schema import Document

Color = list[int]
"""Red, green and blue, 0…255."""
Window = tuple[int, int] | None
"""Height and width in pixels; null for whole images."""


class ClassArea(Document):
    """The pixels of a class in an image."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)
    index: int
    """The value of the class in the mask."""
    class_: str = Field(alias="class", examples=["road"])
    pixels: int
    fraction: float = Field(ge=0, le=1, examples=[0.31])
    """Fraction of the image."""
    color: Color = Field(min_length=3, max_length=3, examples=[[128, 64, 128]])
    """Red, green and blue of the class in the mask, 0 to 255."""


class Segmented(Document):
    """The class of every pixel of an image."""

    width: int
    height: int
    """The size of the upright image and of its mask."""
    window: Window = Field(examples=[[512, 512]])
    """Height and width of the windows in which the image was segmented; null if it was segmented as a whole."""
    areas: list[ClassArea]
    """The predicted classes, the largest first."""
    mask: str = Field(json_schema_extra={"contentEncoding": "base64", "contentMediaType": "image/png"})
    """A PNG whose values are class indices: indexed with the classes' colours, or above 255 classes grey of 16 bits."""


class LargeImages(Document):
    """The way in which large images are segmented."""

    pixels: int
    """Most pixels of an image that is segmented as a whole."""
    window: Window
    """Height and width of the windows in which larger images are segmented."""


class SegmentationModel(Document):
    """The served segmenter."""

    name: str = Field(examples=["street"])
    engine: str = Field(examples=["torch fp32"])
    classes: list[str]
    """Names of the classes, in the order of the mask's values."""
    colors: list[Color]
    """The colour of each class."""
    window: Window
    """Height and width of the windows of all images; null if images are segmented as a whole."""
    large: LargeImages
    preparation: dict[str, Any]
    """Normalization of the pixels, and the size of the crops in training; images are segmented at their own size."""
    limits: ServerLimits
