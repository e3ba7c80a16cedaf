"""JSON documents of a translation server, for OpenAPI."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from vitrail.deploy.server.schema import Document
from vitrail.tasks.translation.settings import BEAMS

TEXT_OR_TEXTS = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
EXAMPLE = '{"text": "A man rides a bicycle."}'


def _counted(text: Any, info: ValidationInfo[Any]) -> Any:
    """Return a list of texts; a single text becomes a list of one. The context may refuse a list before its texts are checked."""
    texts = [text] if isinstance(text, str) else text
    if isinstance(texts, list):
        info.context(texts)
    return texts


class ToTranslate(Document):
    """The fields of a request for a translation."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: Annotated[list[str], BeforeValidator(_counted), TEXT_OR_TEXTS] = Field(min_length=1)
    """A text, or a list of them; long ones are translated sentence by sentence."""
    beams: int = Field(BEAMS, ge=1, le=BEAMS)
    """Beam width; 1 is the fastest, and more than the default would take too long."""
    attention: bool = False
    """Whether to return the attention, too."""


class Alignment(Document):
    """The model's attention for the translation of a text, or of a piece of a long text."""

    source_tokens: list[str] = Field(examples=[[" A", " man", "</s>"]])
    """Tokens of the source; a space marks the beginning of a word."""
    tokens: list[str] = Field(examples=[[" Ein", " Mann", "</s>"]])
    """Tokens of the translation."""
    attention: list[list[float]]
    """Attention weights of each token of the translation to each token of the source."""


class Translation(Document):
    """A text and its translation."""

    source: str = Field(examples=["A man."])
    translation: str = Field(examples=["Ein Mann."])
    """The translation, on one line."""
    score: float = Field(le=0, examples=[-0.7])
    """Log-probability of the translation."""
    attention: list[Alignment] | None = None
    """Attention of each piece of the text, if it was requested."""


class Translations(Document):
    """The translations of the texts of a request, in their order."""

    translations: list[Translation]


class Languages(Document):
    """The source and the target language, as the model's own data name them."""

    source: str = Field(examples=["en"])
    target: str = Field(examples=["de"])


class TextLimits(Document):
    """The limits of a request."""

    body: int
    """Most bytes of the body."""
    texts: int
    """Most texts."""
    characters: int
    """Most characters of a text."""
    beams: int
    """Largest beam width."""
    deadline: float
    """Most seconds to the response."""


class TextModel(Document):
    """The model that translates."""

    name: str = Field(examples=["en-de"])
    engine: str = Field(examples=["torch fp32"])
    languages: Languages
    attention: bool
    """Whether the model has attention."""
    limits: TextLimits
