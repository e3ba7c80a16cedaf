"""The documents that the server answers with, as OpenAPI describes them."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from vitrail.deploy.server.http import problems
from vitrail.deploy.server.pictures import FORM, RAW
from vitrail.tasks.translation.settings import BEAMS

TEXT_OR_TEXTS = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})


def _counted(text: Any, info: ValidationInfo[Any]) -> Any:
    """A text as a list of it. A list is first shown to the context, which may refuse it before each of its texts is looked at."""
    texts = [text] if isinstance(text, str) else text
    if isinstance(texts, list):
        info.context(texts)
    return texts


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
    """How much each patch speaks for the best label, a byte for every row and column; null where that cannot be told."""


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


class ToTranslate(Document):
    """What is asked of a translator."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: Annotated[list[str], BeforeValidator(_counted), TEXT_OR_TEXTS] = Field(min_length=1)
    """A text, or a list of them; long ones are translated sentence by sentence."""
    beams: int = Field(BEAMS, ge=1, le=BEAMS)
    """Translations that are followed side by side; 1 is the fastest, and more than the default would take too long."""
    attention: bool = False
    """Whether to tell where the model looked, too."""


class Alignment(Document):
    """Where the model looked as it translated a text, or a piece of a long one."""

    source_tokens: list[str] = Field(examples=[[" A", " man", "</s>"]])
    """What was read; a space where a word begins."""
    tokens: list[str] = Field(examples=[[" Ein", " Mann", "</s>"]])
    """What was written."""
    attention: list[list[float]]
    """For each token that was written, how much it looked at each that was read."""


class Translation(Document):
    """A text in the other language."""

    source: str = Field(examples=["A man."])
    translation: str = Field(examples=["Ein Mann."])
    """On one line."""
    score: float = Field(le=0, examples=[-0.7])
    """The logarithm of its probability, by the model."""
    attention: list[Alignment] | None = None
    """Of each piece that was translated by itself, where it was asked for."""


class Translations(Document):
    """The translations of the texts of a request, in their order."""

    translations: list[Translation]


class Languages(Document):
    """What is read and what is written, as the model's own data name them."""

    source: str = Field(examples=["en"])
    target: str = Field(examples=["de"])


class TextLimits(Document):
    """What a request may ask for."""

    body: int
    """Bytes of its body."""
    texts: int
    """Texts in it."""
    characters: int
    """Characters of each."""
    beams: int
    """Translations that are followed side by side."""
    deadline: float
    """Seconds to its answer."""


class TextModel(Document):
    """What translates."""

    name: str = Field(examples=["en-de"])
    engine: str = Field(examples=["torch fp32"])
    languages: Languages
    attention: bool
    """Whether it can tell where it looks."""
    limits: TextLimits


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
IMAGES = {
    "requestBody": {
        "required": True,
        "description": "An image, or a form with one file or several; compressed no further.",
        "content": {
            **{kind: {"schema": FILE} for kind in KINDS},
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
TEXTS = {
    "requestBody": {
        "required": True,
        "description": "JSON; compressed no further.",
        "content": {"application/json": {"schema": ToTranslate.model_json_schema()}},
    }
}
EXAMPLE = '{"text": "A man rides a bicycle."}'
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
    """The errors of an operation, beside those that any may have."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({400, 401, 421, *statuses}):
        found[status] = {"description": REASONS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}
    if 429 in found:
        seconds = {"description": "Seconds to wait.", "schema": {"type": "string"}}
        found[429]["headers"] = {"Retry-After": seconds}
    return found
