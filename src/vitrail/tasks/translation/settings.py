"""Settings of translation. Imports no torch."""

from typing import Any, Literal

from vitrail.data.text.tokenizer import require_vocabulary
from vitrail.models.configs.base import Positive
from vitrail.tasks.settings import TaskSettings
from vitrail.tasks.translation import pairs
from vitrail.tasks.translation.requirements import require_languages, require_of_texts, require_text_model

BEAMS = 5
"""Translations that are followed side by side where nobody says otherwise."""


class TranslationSettings(TaskSettings):
    """One language to another."""

    name: str = "translate"
    source: str = ""
    """The language that is read: a column of the data, or the suffix of a file."""
    target: str = ""
    """The language that is written."""
    vocabulary: Positive = 6000
    """Number of tokens that both languages are cut into, at most; a translator to start from brings its own."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """What texts go through before they are cut into tokens: Unicode's NFKC, as SentencePiece has it, or nothing; a translator to
    start from brings its own."""
    bad_lines: Literal["stop", "skip"] = "stop"
    """What a line that is no pair does: end the run, or stay out of it."""
    max_length: Positive = 256
    """Tokens of a sentence; longer ones are not learned from."""
    beams: Positive = BEAMS
    """Translations that are followed side by side when the model is evaluated."""

    def require_possible(self, run: Any, *, starts: bool) -> None:
        require_of_texts(run)
        if not starts:
            require_text_model(run)
            require_languages(self.source, self.target)
            require_vocabulary(self.vocabulary)

    def require_data(self, source: str) -> None:
        if self.source and self.target:
            pairs.require_there(source, (self.source, self.target))


SETTINGS = TranslationSettings
