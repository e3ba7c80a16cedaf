"""Settings of captioning. Imports no torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from vitrail.errors import ConfigError
from vitrail.models.configs.base import ModelConfig, Positive
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.models.registry import for_captions
from vitrail.tasks.captioning.images import sources
from vitrail.tasks.settings import TaskSettings


class CaptionSettings(TaskSettings):
    """A sentence about an image."""

    name: str = "caption"
    text: str | None = None
    """A file with a sentence in each line, of which the decoder learns to write before it sees an image."""
    text_epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Passes over those sentences."""
    vocabulary: Positive = 3000
    """Number of tokens that captions are cut into, at most; a captioner to start from brings its own."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """What captions go through before they are cut into tokens: Unicode's NFKC, or nothing; a captioner to start from brings its
    own."""
    max_length: Positive = LONGEST_CAPTION
    """Tokens of a caption; of a longer one the rest is not learned from."""
    beams: Positive = CAPTION_BEAMS
    """Captions that are followed side by side when the model is evaluated."""
    samples: Annotated[int, Field(ge=0, le=1024)] = 0
    """Captions that are drawn from the model for each image: of the beams the one most like them is taken (minimum Bayes risk).
    0 takes the likeliest."""
    no_repeat: Annotated[int, Field(ge=0, le=16)] = CAPTION_NO_REPEAT
    """So many tokens in a row are written once in a caption; 0 for no such rule."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        return for_captions(start, fields)

    def require_consistent(self) -> None:
        if self.beams == 1 and self.samples:
            hint = "add --task.samples 0, or take several beams"  # the samples may be the recipe's
            raise ConfigError("samples choose among several beams, and task.beams is 1", where="task.samples", hint=hint)

    def require_data(self, source: str) -> None:
        sources.require_there(source)


SETTINGS = CaptionSettings
