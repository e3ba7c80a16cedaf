"""The documents of a server that translates, as OpenAPI describes them."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from vitrail.deploy.server.schema import Document
from vitrail.tasks.translation.settings import BEAMS

TEXT_OR_TEXTS = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
EXAMPLE = '{"text": "A man rides a bicycle."}'


def _counted(text: Any, info: ValidationInfo[Any]) -> Any:
    """Return a text as a list of it. A list is first given to the context, which may refuse it before each text is looked at."""
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
    """The source and the target language, as the model's own data name them."""

    source: str = Field(examples=["en"])
    target: str = Field(examples=["de"])


class TextLimits(Document):
    """The limits of a request."""

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
    """The model that translates."""

    name: str = Field(examples=["en-de"])
    engine: str = Field(examples=["torch fp32"])
    languages: Languages
    attention: bool
    """Whether it can tell where it looks."""
    limits: TextLimits
