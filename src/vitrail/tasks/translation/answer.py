"""A text and its translation: as JSON, as a row of a table, as a line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vitrail.models.text.text_model import Aligned
from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row

_LINE = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True)
class Translated(Answer):
    """A text and its translation."""

    source: str
    text: str
    """On one line."""
    score: float
    """The logarithm of its probability, by the model."""
    alignments: tuple[Aligned, ...] = ()
    """Of each piece that was translated by itself: tokens that were read, tokens that were written, and how much each of these
    looked at each of those; nothing where it was not asked for, or the model has no attention."""

    def to_json(self, name: str = "") -> dict[str, Any]:
        """Return the translation for a program; a text has no name."""
        found: dict[str, Any] = {"source": self.source, "translation": self.text, "score": self.score}
        if self.alignments:
            names = ("source_tokens", "tokens", "attention")
            found["attention"] = [dict(zip(names, alignment, strict=True)) for alignment in self.alignments]
        return found

    def rows(self) -> list[Row]:
        return [[self.source, self.text, f"{self.score:.4f}"]]

    def lines(self) -> list[str]:
        return [self.text]


class Piece(NamedTuple):
    """The translation of as much as is translated as one."""

    text: str
    score: float
    """The logarithm of its probability, by the model."""
    alignment: Aligned | None
    """Tokens that were read, tokens that were written, and how much each of these looked at each of those."""


def joined(text: str, pieces: Sequence[Piece]) -> Translated:
    """The translation of a text, from the translations of its pieces."""
    whole = _LINE.sub(" ", " ".join(piece.text for piece in pieces))
    alignments = tuple(piece.alignment for piece in pieces if piece.alignment is not None)
    return Translated(text, whole, sum(piece.score for piece in pieces), alignments)
