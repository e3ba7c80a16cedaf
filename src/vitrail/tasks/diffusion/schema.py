"""The documents of a server that makes images, as OpenAPI describes them."""

from pydantic import ConfigDict, Field

from vitrail.deploy.server.schema import Document
from vitrail.tasks.diffusion.sampling.samplers import SamplerName

EXAMPLE = '{"class": 0, "seed": 7}'
MOST_STEPS, MOST_GUIDANCE = 250, 20.0
SEEDS = 2**53
"""Seeds are below this number, up to which JavaScript counts."""


class ToSample(Document):
    """The fields of a request for images."""

    model_config = ConfigDict(strict=True, extra="forbid")

    class_: str | int | None = Field(None, alias="class", examples=["dog"])
    """Name or index of the class of all images; by default they are spread evenly over all that the model knows."""
    seed: int = Field(0, ge=0, lt=SEEDS)
    """Seed of the first image; each that follows has the next."""
    steps: int = Field(50, ge=1, le=MOST_STEPS)
    """Steps from noise to image."""
    guidance: float = Field(1.0, ge=0, le=MOST_GUIDANCE)
    """Weight of the class: more than 1 makes images that are more like it, and more alike."""
    count: int = Field(1, ge=1)
    """Number of images."""
    sampler: SamplerName = "ddim"


class SampledImage(Document):
    """An image, and what it depends on beside the options of its request."""

    model_config = ConfigDict(serialize_by_alias=True)

    class_: str | None = Field(alias="class", examples=["dog"])
    """Null of a model without classes."""
    seed: int
    png: str = Field(json_schema_extra={"contentEncoding": "base64", "contentMediaType": "image/png"})


class Samples(Document):
    """The images of a request."""

    images: list[SampledImage]


class SampleLimits(Document):
    """The limits of a request."""

    body: int
    """Bytes of its body."""
    images: int
    """Images that it may ask for."""
    steps: int
    guidance: float
    deadline: float
    """Seconds to its answer."""


class SampleModel(Document):
    """The model that makes images."""

    name: str = Field(examples=["flowers"])
    engine: str = Field(examples=["torch fp32"])
    classes: list[str]
    """Names, by index; none of a model without classes."""
    size: list[int] = Field(min_length=2, max_length=2)
    """Height and width of an image."""
    guidance: bool
    """Whether the class can be weighed."""
    samplers: list[SamplerName]
    limits: SampleLimits
