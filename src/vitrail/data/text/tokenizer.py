"""Texts as numbers of tokens: byte-pair encoding."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import read_text

FILE = "tokenizer.json"
"""In a model folder, ..."""
SETTINGS = "tokenizer_config.json"
"""... and beside it in one of transformers'."""
PAD, START, END = range(3)
SPECIAL = ("<pad>", "<s>", "</s>")
Normalization = Literal["nfkc", "none"]
LARGEST, MOST = 2**27, 2**24
"""Bytes of a file, and tokens of a vocabulary."""


class ByteLevel:
    """What all byte-pair encodings of bytes have in common.

    Args:
        inner: of the library ``tokenizers``.
    """

    end: int

    def __init__(self, inner: Any):
        self.inner = inner
        inner.encode_special_tokens = True  # a text may hold the letters of a mark, and means no mark

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    @property
    def names(self) -> list[str]:
        """Of all tokens, by their numbers."""
        return [self.inner.id_to_token(number) for number in range(len(self))]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, the end behind them."""
        return [[*found.ids, self.end] for found in self.inner.encode_batch(list(texts), add_special_tokens=False)]

    encode_targets = encode

    def language_code(self, text: str) -> str:
        """Nothing: such a model has one language."""
        return ""


class Tokenizer(ByteLevel):
    """Byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909) of bytes, so that no text is unknown.

    Args:
        inner: of the library ``tokenizers``.
    """

    pad, start, end = PAD, START, END

    @classmethod
    def learned(cls, texts: Iterable[str], vocabulary: int, normalization: Normalization = "nfkc") -> Self:
        """Learn which bytes often stand together, up to so many tokens.

        Args:
            texts: to learn from.
            vocabulary: the most tokens.
            normalization: what every text goes through first: Unicode's NFKC, as SentencePiece has it, makes one letter of an
                accent and its letter, of ``ﬁ`` two, and digits of full-width ones; ``none`` leaves texts as they are.

        Raises:
            ConfigError: ``vocabulary`` is smaller than the bytes and the marks of beginning, end and filling; the extra ``text``
                is not installed.
        """
        library = tokenizers_library()
        require_vocabulary(vocabulary)
        inner = _empty(library)
        if normalization == "nfkc":
            inner.normalizer = library.normalizers.NFKC()
        bytes_alone = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=bytes_alone, show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    @classmethod
    def read(cls, text: str, *, where: object) -> Self:
        """From `to_json`; raises `ModelFileError`."""
        library = tokenizers_library()
        inner = _opened(library, text, where)
        own = [inner.token_to_id(token) for token in SPECIAL] == [PAD, START, END]
        numbered = sorted(inner.get_vocab().values()) == list(range(inner.get_vocab_size()))
        alphabet = set(library.pre_tokenizers.ByteLevel.alphabet()) <= set(inner.get_vocab())
        alike = _rules(inner) == _rules(_empty(library))
        normal = json.loads(text).get("normalizer") in (None, {"type": "NFKC"})
        if not (own and numbered and alphabet and alike and normal) or inner.truncation or inner.padding:
            what = f"the tokenizer is not one of bytes whose tokens begin with {', '.join(SPECIAL)}"
            raise ModelFileError(what, where=where, hint="give one that Vitrail has made")
        inner.post_processor, inner.decoder = None, library.decoders.ByteLevel()  # in place of what is there for others
        return cls(inner)

    @classmethod
    def from_file(cls, file: Path) -> Self:
        """From a file of `to_json`; raises `ModelFileError`."""
        try:
            text = read_text(file, LARGEST)
        except OSError as error:
            what = f"{file.name} is missing: {error.strerror}"
            raise ModelFileError(what, where=file.parent, hint="give a complete folder") from None
        except UnicodeDecodeError:
            raise ModelFileError(f"{file.name} is not in UTF-8", where=file, hint="give a complete folder") from None
        return cls.read(text, where=file)

    def __getstate__(self) -> str:
        return self.to_json()

    def __setstate__(self, state: str) -> None:
        self.__init__(tokenizers_library().Tokenizer.from_str(state))  # type: ignore[misc]

    def to_json(self) -> str:
        """All of it, as `read` takes it."""
        return str(self.inner.to_str())

    def files(self) -> dict[str, bytes]:
        """What a folder keeps, by the name of the file."""
        return {FILE: self.to_json().encode()}

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """The same for transformers' ``AutoTokenizer``, which ends a text with `END` and writes none with a first space."""
        values = json.loads(self.to_json())
        pieces = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": SPECIAL[END], "type_id": 0}}]
        end = {"id": SPECIAL[END], "ids": [END], "tokens": [SPECIAL[END]]}
        values["post_processor"] = {
            "type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": {SPECIAL[END]: end},
        }  # fmt: skip
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        values["decoder"] = {"type": "Sequence", "decoders": [values["decoder"], strip]}
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True)),
            **dict(zip(("source_lang", "target_lang"), languages, strict=False)),
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": False,
        }
        contents = {FILE: values, SETTINGS: settings}
        return {name: json.dumps(content, ensure_ascii=False, indent=1).encode() for name, content in contents.items()}

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; marks of beginning, end and filling are left out."""
        return str(self.inner.decode(list(tokens), skip_special_tokens=True)).strip()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as people read it: a space where a word begins, ``·`` for part of a letter."""
        return [SPECIAL[t] if t < len(SPECIAL) else self.inner.decode([t]).replace("\ufffd", "·") for t in tokens]


@contextmanager
def named_failures(where: object) -> Iterator[None]:
    """Whatever the library tokenizers fails with at a file is a `ModelFileError` that names it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # it raises plain exceptions, and panics, which are none
        what = f"{FILE} is damaged: {str(error)[:200]}"
        raise ModelFileError(what, where=where, hint="give a complete model folder") from None


def _opened(library: Any, text: str, where: object) -> Any:
    with named_failures(where):
        inner = library.Tokenizer.from_str(text)
        _require_numbers(json.loads(text))
        return inner


def _require_numbers(values: Any) -> None:
    """Refuse numbers of tokens beyond `MOST`, since the library counts up to them where it writes; raises `ValueError`."""
    vocabulary = values["model"]["vocab"]
    numbers = [*(vocabulary.values() if isinstance(vocabulary, dict) else ()), *(own["id"] for own in values["added_tokens"])]
    if not all(type(number) is int and 0 <= number < MOST for number in numbers):
        raise ValueError(f"tokens have numbers from 0 to {MOST:,}")


def open_tokenizer(file: Path) -> Any:
    """Anybody's tokenizer, as the library tokenizers has it; raises `ModelFileError`, with the file."""
    with named_failures(file):
        text = read_text(file, LARGEST)
        _require_no_growth(json.loads(text).get("normalizer"))
    return _opened(tokenizers_library(), text, file)


CLEANING = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "BertNormalizer"}
"""Normalizers that make a text hardly longer, as often as they are applied."""


def _require_no_growth(normalizer: Any) -> None:
    """Refuse what could make a text twice as long, and again, in a line each; raises `ValueError`."""
    rest = [normalizer] if normalizer is not None else []
    while rest:
        one = rest.pop()
        if one["type"] == "Sequence":
            rest.extend(one["normalizers"])
        elif one["type"] not in CLEANING and not (one["type"] == "Replace" and len(one["content"]) <= 1):
            raise ValueError(f"its normalizer {str(one)[:80]} is not known here")


def require_vocabulary(count: int) -> None:
    """Refuse fewer tokens than there are bytes and marks; raises `ConfigError`."""
    least = 256 + len(SPECIAL)
    if count < least:
        hint = f"give {least} or more"
        raise ConfigError(f"{count} tokens are less than all bytes", where="task.vocabulary", hint=hint)


def _empty(library: Any) -> Any:
    """A tokenizer of bytes that has learned nothing."""
    inner = library.Tokenizer(library.models.BPE())
    inner.add_special_tokens(list(SPECIAL))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    inner.decoder = library.decoders.ByteLevel()
    return inner


def _rules(inner: Any) -> list[Any]:
    """How a tokenizer cuts texts, whatever it has learned: by other rules it would give other tokens, or never come to an end."""
    told = json.loads(inner.to_str())
    model = {name: value for name, value in told["model"].items() if name not in ("vocab", "merges")}
    return [model, told["pre_tokenizer"], told["added_tokens"]]


def tokenizers_library() -> Any:
    """The library ``tokenizers``; raises `ConfigError` where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        what, hint = "texts are read by the library tokenizers", 'pip install "vitrail[text]"'
        raise ConfigError(what, where="tokenizers", hint=hint) from None
    return tokenizers
