"""What turns texts into numbers of tokens, whichever library does it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from vitrail.data.text.byte_pairs import BytePairs, Marks, is_byte_pairs
from vitrail.data.text.pieces import SOURCE, SentencePieces
from vitrail.data.text.tokenizer import FILE, Tokenizer


class Tokens(Protocol):
    """What a translator asks of its tokenizer."""

    pad: int
    """Fills rows up to a common length."""
    start: int
    """The written text begins from it."""
    end: int
    """Ends a text."""

    @property
    def names(self) -> list[str]:
        """Of all tokens, by their numbers."""

    def __len__(self) -> int:
        """How many tokens there are."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text that is read, with the end."""

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text that is to be written, with the end."""

    def language_code(self, text: str) -> str:
        """Return what says at the beginning of a text which language is meant, or nothing; raises `DataError` of another."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without marks."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as people read it."""

    def files(self) -> dict[str, bytes]:
        """What a folder keeps, for `open_tokens`, by the names of files."""

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """What a folder for transformers keeps, for `open_tokens` as well, with the names of both languages, if there are any."""


def open_tokens(folder: Path, marks: Marks | None = None) -> Tokens:
    """What a folder keeps of its tokens; the ``marks`` are said by its files unless they are known.

    Raises:
        ModelFileError: files are missing, damaged or refused.
    """
    if (folder / SOURCE).is_file() and not (folder / FILE).is_file():
        return SentencePieces.from_folder(folder)
    return BytePairs.from_folder(folder, marks) if is_byte_pairs(folder) else Tokenizer.from_file(folder / FILE)
