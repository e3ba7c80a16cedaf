"""Tokens as in MarianMT: SentencePiece pieces, with ids from a separate vocabulary file."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from vitrail.errors import ConfigError, DataError, ModelFileError, nearest
from vitrail.files import read_bytes
from vitrail.settings import brief

SOURCE, TARGET, VOCABULARY, SETTINGS = FILES = ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json")
"""Files of the tokenizer in a model folder; only the last is optional."""
MARKS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
"""Keys of the padding, end and unknown token in the settings, with the default tokens."""
SPACE = "▁"
MOST_CODES = 20
"""Number of language codes that an error lists."""
_CODE, _USUAL_CODE = re.compile(r">>[^\s<>]+<<"), re.compile(r">>[A-Za-z]{2,3}([_@-][A-Za-z0-9_@-]+)?<<")
HINT = "give a complete folder of a MarianMT"


class SentencePieces:
    """Two SentencePiece models (Kudo and Richardson 2018, https://arxiv.org/abs/1808.06226), one for each language.

    Both take the ids of their pieces from one vocabulary; other pieces become the unknown token. The decoder starts from the
    padding token.

    Args:
        contents: the contents of `FILES`, by name.
        where: their folder, for errors.

    Raises:
        ModelFileError: a file is damaged, or has an unsupported setting.
        ConfigError: the extra ``marian`` is not installed.
    """

    def __init__(self, contents: Mapping[str, bytes], *, where: object):
        self.contents = dict(contents)
        self.numbers: dict[str, int] = _numbers(contents[VOCABULARY], where)
        self.names = sorted(self.numbers, key=self.numbers.__getitem__)
        self.codes = sorted(name for name in self.numbers if _CODE.fullmatch(name))
        """Codes of the target languages; empty for a model with one target language."""
        marks = _marks(_object(contents[SETTINGS], SETTINGS, where) if SETTINGS in contents else {}, where)
        if absent := [mark for mark in marks if mark not in self.numbers]:
            raise ModelFileError(f"{VOCABULARY} has no {', '.join(absent)}", where=where, hint=HINT)
        self.pad, self.end, self.unknown = (self.numbers[mark] for mark in marks)
        self.start = self.pad
        self._source, self._target = (_model(contents[name], name, where) for name in (SOURCE, TARGET))

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Read the tokenizer's files in a folder; raises `ModelFileError`."""
        contents = {}
        for name in FILES:
            try:
                contents[name] = read_bytes(folder / name, 2**27)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and name == SETTINGS:
                    continue
                raise ModelFileError(f"{name} cannot be read: {error.strerror}", where=folder, hint=HINT) from None
        return cls(contents, where=folder)

    def files(self) -> dict[str, bytes]:
        """Return the contents of the tokenizer's files in a model folder, by name; transformers reads them, too."""
        return self.contents

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """Return the same files as `files`."""
        return self.contents

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each source text, with the end token; a language code such as ``>>de<<`` becomes one token."""
        codes = [self.language_code(text) for text in texts]
        pieces = self._source.encode([text[len(code) :] for code, text in zip(codes, texts, strict=True)], out_type=str)
        return [self._numbered([code] * bool(code) + own) for code, own in zip(codes, pieces, strict=True)]

    def language_code(self, text: str) -> str:
        """Return the code of the target language at the beginning of a text, such as ``>>de<<``; "" if there is none.

        If the vocabulary has no codes, only texts of the usual form count as codes: two or three letters, and perhaps a variant,
        as in ``>>zh_Hans<<``.

        Raises:
            DataError: the vocabulary lacks the code, which the model would read as an unknown token.
        """
        code = (_CODE if self.codes else _USUAL_CODE).match(text)
        if code is None or code[0] in self.numbers:
            return "" if code is None else code[0]
        hint = "the model has one target language: remove the code"
        if self.codes:
            near = nearest(code[0].strip("<>"), [name.strip("<>") for name in self.codes])
            rest = f" and {len(self.codes) - MOST_CODES:,} more" * (len(self.codes) > MOST_CODES)
            hint = f"did you mean >>{near}<<? " * (near is not None) + f"known: {', '.join(self.codes[:MOST_CODES])}{rest}"
        raise DataError(f"the model has no language {code[0]}", where=f"the text {brief(text)}", hint=hint)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each target text, with the end token."""
        return [self._numbered(pieces) for pieces in self._target.encode(list(texts), out_type=str)]

    def _numbered(self, pieces: Sequence[str]) -> list[int]:
        return [*(self.numbers.get(piece, self.unknown) for piece in pieces), self.end]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without padding, end and unknown tokens."""
        marks = {self.pad, self.end, self.unknown}
        text: str = self._target.decode_pieces([self.names[token] for token in tokens if token not in marks])
        return text.replace(SPACE, " ").strip()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the readable text of each token, with a space where a word begins."""
        return [self.names[token].replace(SPACE, " ") for token in tokens]


def _numbers(content: bytes, where: object) -> dict[str, int]:
    """Return the id of each token; raises `ModelFileError` unless the ids are consecutive from 0."""
    values = _object(content, VOCABULARY, where)
    numbers = list(values.values())
    if not numbers or not all(type(number) is int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise ModelFileError(f"the token ids in {VOCABULARY} are not consecutive", where=where, hint=HINT)
    try:
        "".join(values).encode("utf-8")
    except UnicodeEncodeError:
        raise ModelFileError(f"{VOCABULARY} has tokens that are not valid Unicode", where=where, hint=HINT) from None
    return values


def _marks(settings: Mapping[str, Any], where: object) -> list[str]:
    """Return the special tokens that the settings name; raises `ModelFileError` for unsupported settings."""
    for name in ("separate_vocabs", "sp_model_kwargs"):
        if settings.get(name):
            what = f"{name} is {brief(settings[name])}, which is not supported"
            raise ModelFileError(what, where=where, hint="give a model with one vocabulary for both languages")
    named = [settings.get(name) or usual for name, usual in MARKS.items()]
    marks: list[Any] = [mark.get("content") if isinstance(mark, dict) else mark for mark in named]
    if wrong := [mark for mark in marks if not isinstance(mark, str)]:
        raise ModelFileError(f"{SETTINGS} has {brief(wrong[0])} in place of a token", where=where, hint=HINT)
    return marks


def _object(content: bytes, name: str, where: object) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} is damaged: {error}", where=where, hint=HINT) from None
    if not isinstance(values, dict):
        raise ModelFileError(f"{name} holds no object", where=where, hint=HINT)
    return values


def _model(content: bytes, name: str, where: object) -> Any:
    """Return the SentencePiece processor of a model file."""
    try:
        import sentencepiece
    except ImportError:
        what, hint = "a MarianMT needs the library sentencepiece", 'pip install "vitrail[marian]"'
        raise ConfigError(what, where=where, hint=hint) from None
    if not content:  # the library would accept it as a model without pieces
        raise ModelFileError(f"{name} is empty", where=where, hint=HINT)
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except Exception as error:  # the library raises untyped errors
        raise ModelFileError(f"{name} is damaged: {str(error)[:200]}", where=where, hint=HINT) from None
