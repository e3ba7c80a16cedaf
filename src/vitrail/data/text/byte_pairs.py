"""Tokens as GPT-2 has them: byte-pair encoding by somebody else's vocabulary."""

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
"""The older two files, in place of `FILE`."""
KIND = "GPT2Tokenizer"
"""transformers' name of such tokenizers."""
HINT = "give a complete folder, with the tokenizer of the model"


class BytePairs(ByteLevel):
    """Byte-pair encoding of bytes (Radford et al. 2019)."""

    @classmethod
    def from_folder(cls, folder: Path, marks: Marks | None = None) -> Self:
        """Read the files of a folder, which name the ``marks`` unless they are given.

        Raises:
            ModelFileError: a file is missing or damaged, cuts texts by other rules, or there is no such mark.
            ConfigError: the extra ``text`` is not installed.
        """
        inner = open_tokenizer(folder / FILE) if (folder / FILE).is_file() else _from_two_files(folder)
        _require_bytes(inner, folder)
        return cls(inner, _named_marks(inner, folder) if marks is None else marks)

    def files(self) -> dict[str, bytes]:
        """Return the files of a model folder, by name; transformers reads them, too."""
        names = [self.inner.id_to_token(mark) for mark in (self.pad, self.start, self.end)]
        settings = {"tokenizer_class": KIND, **dict(zip(MARKS, names, strict=True))}
        return {FILE: self.to_json().encode(), SETTINGS: json.dumps(settings, ensure_ascii=False, indent=1).encode()}

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """Return the same files."""
        return self.files()


def is_byte_pairs(folder: Path) -> bool:
    """Return whether a folder has such tokens."""
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
            raise ModelFileError(f"neither {FILE} nor {name} is there", where=folder, hint=HINT)
    with named_failures(folder):
        inner = library.Tokenizer(library.models.BPE.from_file(str(folder / VOCABULARY), str(folder / MERGES)))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    return inner


def _require_bytes(inner: Any, folder: Path) -> None:
    """Raise `ModelFileError` for a tokenizer that does not pair bytes, or whose tokens are not numbered one by one."""
    values = json.loads(inner.to_str())
    kinds = [(values.get(part) or {}).get("type") for part in ("model", "pre_tokenizer", "decoder")]
    if kinds != ["BPE", "ByteLevel", "ByteLevel"] or values.get("normalizer") or not is_numbered(inner):
        what = f"the tokenizer is none of pairs of bytes, as GPT-2's is: {brief(kinds)}"
        raise ModelFileError(what, where=folder, hint=HINT)
    inner.no_padding()
    inner.no_truncation()


def _named_marks(inner: Any, folder: Path) -> Marks:
    """Return the marks that the settings of a folder name."""
    settings, marks = _settings(folder), []
    for name in MARKS:
        mark = settings.get(name)
        token = mark.get("content") if isinstance(mark, dict) else mark
        number = inner.token_to_id(token) if isinstance(token, str) else None
        if number is None:
            raise ModelFileError(f"{SETTINGS} names no {name} that is a token", where=folder, hint=HINT)
        marks.append(number)
    return marks[0], marks[1], marks[2]
