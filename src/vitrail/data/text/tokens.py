"""The contract of every tokenizer, whichever library computes its tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from vitrail.data.text.byte_pairs import BytePairs, is_byte_pairs
from vitrail.data.text.pieces import SOURCE, SentencePieces
from vitrail.data.text.tokenizer import FILE, Marks, Tokenizer


class Tokens(Protocol):
    """A tokenizer of texts that are read and of texts that are written."""

    pad: int
    """Fills rows up to a common length."""
    start: int
    """The written text begins from it."""
    end: int
    """Ends a text."""

    @property
    def names(self) -> list[str]:
        """Names of all tokens, by their numbers."""

    def __len__(self) -> int:
        """Return the number of tokens."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text that is read, with the end."""

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text that is to be written, with the end."""

    def language_code(self, text: str) -> str:
        """Return the code of a language at the beginning of a text, or nothing; raises `DataError` for an unknown one."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens, without marks."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return each token as people read it."""

    def files(self) -> dict[str, bytes]:
        """Return the files of a model folder, by name, for `open_tokens`."""

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """Return files that transformers reads, too, with the names of both languages, if there are any."""


def open_tokens(folder: Path, marks: Marks | None = None) -> Tokens:
    """Read the tokens of a folder, whose files name the ``marks`` unless they are given; raises `ModelFileError`."""
    if (folder / SOURCE).is_file() and not (folder / FILE).is_file():
        return SentencePieces.from_folder(folder)
    return BytePairs.from_folder(folder, marks) if is_byte_pairs(folder) else Tokenizer.from_file(folder / FILE)
