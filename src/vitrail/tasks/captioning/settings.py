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
    """Captioning: a sentence about an image."""

    name: str = "caption"
    text: str | None = None
    """A text file with one sentence per line, on which the decoder is trained before the training with images."""
    text_epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Epochs of the training on these sentences."""
    vocabulary: Positive = 3000
    """Largest size of the vocabulary. A captioner to start from keeps its own vocabulary."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """Normalization of captions before tokenization: Unicode's NFKC, or none. A captioner to start from keeps its own."""
    max_length: Positive = LONGEST_CAPTION
    """Most tokens of a caption; longer captions are cut in training."""
    beams: Positive = CAPTION_BEAMS
    """Beam width for the evaluation of the model."""
    samples: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of captions to sample for each image. The beam that is most similar to them is chosen (minimum Bayes risk decoding).
    0 chooses the most probable beam."""
    no_repeat: Annotated[int, Field(ge=0, le=16)] = CAPTION_NO_REPEAT
    """Length of token sequences that may occur only once in a caption; 0 for no such rule."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        return for_captions(start, fields)

    def require_consistent(self) -> None:
        if self.beams == 1 and self.samples:
            hint = "add --task.samples 0, or use several beams"  # the samples may be the recipe's
            raise ConfigError("samples choose among several beams, but task.beams is 1", where="task.samples", hint=hint)

    def require_data(self, source: str) -> None:
        sources.require_there(source)


SETTINGS = CaptionSettings
