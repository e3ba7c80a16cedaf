"""Byte-pair tokens as in GPT-2, with the vocabulary of a given model folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from vitrail.data.text.tokenizer import (
    FILE,
    MARKS,
    SETTINGS,
    ByteLevel,
    Marks,
    is_numbered,
    named_failures,
    open_tokenizer,
    tokenizers_library,
)
from vitrail.errors import ModelFileError
from vitrail.files import read_text
from vitrail.settings import brief

VOCABULARY, MERGES = "vocab.json", "merges.txt"
"""The two files of older folders, in place of `FILE`."""
KIND = "GPT2Tokenizer"
"""Name of such tokenizers in transformers."""
HINT = "give a complete model folder, with its tokenizer"


class BytePairs(ByteLevel):
    """Byte-level byte-pair encoding (Radford et al. 2019)."""

    @classmethod
    def from_folder(cls, folder: Path, marks: Marks | None = None) -> Self:
        """Read the tokenizer of a folder; by default the special tokens (``marks``) are those that its files name.

        Raises:
            ModelFileError: a file is missing or damaged, splits texts by other rules, or names no special tokens.
            ConfigError: the extra ``text`` is not installed.
        """
        inner = open_tokenizer(folder / FILE) if (folder / FILE).is_file() else _from_two_files(folder)
        _require_bytes(inner, folder)
        return cls(inner, _named_marks(inner, folder) if marks is None else marks)

    def files(self) -> dict[str, bytes]:
        """Return the contents of the tokenizer's files in a model folder, by name; transformers reads them, too."""
        names = [self.inner.id_to_token(mark) for mark in (self.pad, self.start, self.end)]
        settings = {"tokenizer_class": KIND, **dict(zip(MARKS, names, strict=True))}
        return {FILE: self.to_json().encode(), SETTINGS: json.dumps(settings, ensure_ascii=False, indent=1).encode()}

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """Return the same files as `files`."""
        return self.files()


def is_byte_pairs(folder: Path) -> bool:
    """Return whether a folder has a byte-level tokenizer as in GPT-2."""
    settings = _settings(folder)
    return str(settings.get("tokenizer_class", "")).startswith(KIND) or (not settings and (folder / MERGES).is_file())


def _settings(folder: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_text(folder / SETTINGS))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{SETTINGS} is damaged: {error}", where=folder / SETTINGS, hint=HINT) from None
    return values if isinstance(values, dict) else {}


def _from_two_files(folder: Path) -> Any:
    library = tokenizers_library()
    for name in (VOCABULARY, MERGES):
        if not (folder / name).is_file():
            raise ModelFileError(f"the folder has neither {FILE} nor {name}", where=folder, hint=HINT)
    with named_failures(folder):
        inner = library.Tokenizer(library.models.BPE.from_file(str(folder / VOCABULARY), str(folder / MERGES)))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    return inner


def _require_bytes(inner: Any, folder: Path) -> None:
    """Raise `ModelFileError` unless the tokenizer is a byte-level BPE with consecutive token ids."""
    values = json.loads(inner.to_str())
    kinds = [(values.get(part) or {}).get("type") for part in ("model", "pre_tokenizer", "decoder")]
    if kinds != ["BPE", "ByteLevel", "ByteLevel"] or values.get("normalizer") or not is_numbered(inner):
        what = f"the tokenizer is no byte-level BPE as GPT-2's: found {brief(kinds)}"
        raise ModelFileError(what, where=folder, hint=HINT)
    inner.no_padding()
    inner.no_truncation()


def _named_marks(inner: Any, folder: Path) -> Marks:
    """Return the ids of the special tokens that the settings of a folder name."""
    settings, marks = _settings(folder), []
    for name in MARKS:
        mark = settings.get(name)
        token = mark.get("content") if isinstance(mark, dict) else mark
        number = inner.token_to_id(token) if isinstance(token, str) else None
        if number is None:
            raise ModelFileError(f"{SETTINGS} names no {name} that is in the vocabulary", where=folder, hint=HINT)
        marks.append(number)
    return marks[0], marks[1], marks[2]
