"""The interface of all tokenizers, independent of the library."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from vitrail.data.text.byte_pairs import BytePairs, is_byte_pairs
from vitrail.data.text.pieces import SOURCE, SentencePieces
from vitrail.data.text.tokenizer import FILE, Marks, Tokenizer


class Tokens(Protocol):
    """A tokenizer for source texts (encoder) and target texts (decoder)."""

    pad: int
    """Id of the token that pads rows to a common length."""
    start: int
    """Id of the token that decoding starts from."""
    end: int
    """Id of the token that ends a text."""

    @property
    def names(self) -> list[str]:
        """The names of all tokens, by id."""

    def __len__(self) -> int:
        """Return the number of tokens."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each source text, with the end token."""

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each target text, with the end token."""

    def language_code(self, text: str) -> str:
        """Return the code of the target language at the beginning of a text, or ""; raises `DataError` for an unknown code."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the readable text of each token."""

    def files(self) -> dict[str, bytes]:
        """Return the contents of the tokenizer's files in a model folder, by name, for `open_tokens`."""

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """Return files that transformers reads, too; ``languages`` are the source and target language, or empty."""


def open_tokens(folder: Path, marks: Marks | None = None) -> Tokens:
    """Read the tokenizer of a model folder; raises `ModelFileError`.

    ``marks`` are the ids of the padding, start and end token; by default those that the files name.
    """
    if (folder / SOURCE).is_file() and not (folder / FILE).is_file():
        return SentencePieces.from_folder(folder)
    return BytePairs.from_folder(folder, marks) if is_byte_pairs(folder) else Tokenizer.from_file(folder / FILE)
