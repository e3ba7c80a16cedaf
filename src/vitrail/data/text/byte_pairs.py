"""Texts as numbers of tokens as GPT-2 has them: byte-pair encoding by somebody else's vocabulary."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from vitrail.data.text.tokenizer import FILE, SETTINGS, ByteLevel, named_failures, open_tokenizer, tokenizers_library
from vitrail.errors import ModelFileError
from vitrail.files import read_text
from vitrail.settings import brief

VOCABULARY, MERGES = "vocab.json", "merges.txt"
"""The older two files, in place of `FILE`."""
KIND = "GPT2Tokenizer"
"""What transformers calls it."""
MARKS = ("pad_token", "bos_token", "eos_token")
"""What fills rows up, what a text begins from and what ends it, by their names in `SETTINGS`."""
HINT = "give a complete folder, with the tokenizer of the model"

Marks = tuple[int, int, int]
"""The numbers of these three."""


class BytePairs(ByteLevel):
    """Byte-pair encoding of bytes (Radford et al. 2019), so that no text is unknown.

    Args:
        inner: of the library ``tokenizers``.
        marks: the tokens that fill rows up, begin a text and end it; they may be the same one.
    """

    def __init__(self, inner: Any, marks: Marks):
        super().__init__(inner)
        self.pad, self.start, self.end = marks

    @classmethod
    def from_folder(cls, folder: Path, marks: Marks | None = None) -> Self:
        """From the files of a folder, which say the ``marks`` where nothing else does.

        Raises:
            ModelFileError: a file is missing or damaged, cuts texts by other rules, or there is no such mark.
            ConfigError: the extra ``text`` is not installed.
        """
        inner = open_tokenizer(folder / FILE) if (folder / FILE).is_file() else _of_two_files(folder)
        _require_bytes(inner, folder)
        return cls(inner, _told_marks(inner, folder) if marks is None else marks)

    def __getstate__(self) -> tuple[str, Marks]:
        return self.inner.to_str(), (self.pad, self.start, self.end)

    def __setstate__(self, state: tuple[str, Marks]) -> None:
        self.__init__(tokenizers_library().Tokenizer.from_str(state[0]), state[1])  # type: ignore[misc]

    def files(self) -> dict[str, bytes]:
        """What a folder keeps, by the names of files; transformers reads them, too."""
        names = [self.inner.id_to_token(mark) for mark in (self.pad, self.start, self.end)]
        settings = {"tokenizer_class": KIND, **dict(zip(MARKS, names, strict=True))}
        return {FILE: str(self.inner.to_str()).encode(), SETTINGS: json.dumps(settings, ensure_ascii=False, indent=1).encode()}

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """The same: they are transformers' own."""
        return self.files()

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without marks."""
        marks = {self.pad, self.start, self.end}
        return str(self.inner.decode([token for token in tokens if token not in marks], skip_special_tokens=True)).strip()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as people read it: a space where a word begins, ``·`` for part of a letter."""
        return [self.inner.decode([token], skip_special_tokens=False).replace("\ufffd", "·") for token in tokens]


def is_byte_pairs(folder: Path) -> bool:
    """Whether a folder keeps such tokens."""
    settings = _settings(folder)
    return str(settings.get("tokenizer_class", "")).startswith(KIND) or (not settings and (folder / MERGES).is_file())


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(folder / SETTINGS))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{SETTINGS} is damaged: {error}", where=folder / SETTINGS, hint=HINT) from None
    return found if isinstance(found, dict) else {}


def _of_two_files(folder: Path) -> Any:
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
    """Refuse a tokenizer that does not cut texts into pairs of bytes, or whose tokens are not numbered one by one."""
    told = json.loads(inner.to_str())
    kinds = [(told.get(part) or {}).get("type") for part in ("model", "pre_tokenizer", "decoder")]
    numbered = sorted(inner.get_vocab().values()) == list(range(inner.get_vocab_size()))
    if kinds != ["BPE", "ByteLevel", "ByteLevel"] or told.get("normalizer") or not numbered:
        what = f"the tokenizer is none of pairs of bytes, as GPT-2's is: {brief(kinds)}"
        raise ModelFileError(what, where=folder, hint=HINT)
    inner.no_padding()
    inner.no_truncation()


def _told_marks(inner: Any, folder: Path) -> Marks:
    settings = _settings(folder)
    found = []
    for name in MARKS:
        told = settings.get(name)
        token = told.get("content") if isinstance(told, dict) else told
        number = inner.token_to_id(token) if isinstance(token, str) else None
        if number is None:
            raise ModelFileError(f"{SETTINGS} names no {name} that is a token", where=folder, hint=HINT)
        found.append(number)
    return found[0], found[1], found[2]
