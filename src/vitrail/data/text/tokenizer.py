"""Byte-pair encoding: the common base of byte-level tokenizers, and the tokenizer that a run trains."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import read_text

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
"""The tokenizer's file in a model folder, and transformers' file next to it."""
MARKS = ("pad_token", "bos_token", "eos_token")
"""Keys of the padding, start and end token in `SETTINGS`."""
Marks = tuple[int, int, int]
"""Ids of the padding, start and end token."""
PAD, START, END = range(3)
SPECIAL = ("<pad>", "<s>", "</s>")
Normalization = Literal["nfkc", "none"]
LARGEST, MOST = 2**27, 2**24
"""Limits: bytes of a file, and tokens of a vocabulary."""
CLEANING = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "BertNormalizer"}
"""Normalizers that cannot make a text much longer, even if applied repeatedly."""


class ByteLevel:
    """A byte-level byte-pair encoding, which can encode any text without unknown tokens.

    Args:
        inner: a tokenizer of the library ``tokenizers``.
        marks: the ids of the padding, start and end token; they may be equal.
    """

    def __init__(self, inner: Any, marks: Marks = (PAD, START, END)):
        self.inner = inner
        self.pad, self.start, self.end = marks
        inner.encode_special_tokens = True  # the characters of a special token in a text do not mean that token

    def __getstate__(self) -> tuple[str, Marks]:
        return self.to_json(), (self.pad, self.start, self.end)

    def __setstate__(self, state: tuple[str, Marks]) -> None:
        self.__init__(tokenizers_library().Tokenizer.from_str(state[0]), state[1])  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    @property
    def names(self) -> list[str]:
        """The names of all tokens, by id."""
        return [self.inner.id_to_token(number) for number in range(len(self))]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, with the end token."""
        return [[*encoded.ids, self.end] for encoded in self.inner.encode_batch(list(texts), add_special_tokens=False)]

    encode_targets = encode

    def language_code(self, text: str) -> str:
        """Return "": such a model has one target language."""
        return ""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        marks = {self.pad, self.start, self.end}
        return str(self.inner.decode([token for token in tokens if token not in marks], skip_special_tokens=True)).strip()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the readable text of each token, with a space where a word begins and ``·`` for part of a character."""
        return [self.inner.decode([token], skip_special_tokens=False).replace("\ufffd", "·") for token in tokens]

    def to_json(self) -> str:
        """Return the tokenizer as JSON, for `Tokenizer.read`."""
        return str(self.inner.to_str())


class Tokenizer(ByteLevel):
    """A byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909) that a run has trained."""

    @classmethod
    def learned(cls, texts: Iterable[str], vocabulary: int, normalization: Normalization = "nfkc") -> Self:
        """Train a tokenizer on texts, up to ``vocabulary`` tokens.

        The tokenizer normalizes every text, in training and later. ``nfkc`` is Unicode's NFKC, as in SentencePiece: it composes
        letters with accents, splits ``ﬁ`` into two letters, and replaces full-width digits; ``none`` changes nothing.

        Raises:
            ConfigError: ``vocabulary`` is smaller than the bytes and special tokens, or the extra ``text`` is not installed.
        """
        library = tokenizers_library()
        require_vocabulary(vocabulary)
        inner = _empty(library)
        if normalization == "nfkc":
            inner.normalizer = library.normalizers.NFKC()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    @classmethod
    def read(cls, text: str, *, where: object) -> Self:
        """Read the result of `to_json`; raises `ModelFileError`."""
        library = tokenizers_library()
        with named_failures(where):
            inner = _parsed(text)
        marks = [inner.token_to_id(token) for token in SPECIAL] == [PAD, START, END]
        alphabet = set(library.pre_tokenizers.ByteLevel.alphabet()) <= set(inner.get_vocab())
        same_rules = _rules(inner) == _rules(_empty(library))
        normal = json.loads(text).get("normalizer") in (None, {"type": "NFKC"})
        if not (marks and is_numbered(inner) and alphabet and same_rules and normal) or inner.truncation or inner.padding:
            what = f"the tokenizer is no byte-level BPE whose first tokens are {', '.join(SPECIAL)}"
            raise ModelFileError(what, where=where, hint="give a tokenizer that Vitrail has trained")
        inner.post_processor, inner.decoder = None, library.decoders.ByteLevel()  # replaces those for transformers
        return cls(inner)

    @classmethod
    def from_file(cls, file: Path) -> Self:
        """Read a file with the result of `to_json`; raises `ModelFileError`."""
        with named_failures(file):
            text = read_text(file, LARGEST)
        return cls.read(text, where=file)

    def files(self) -> dict[str, bytes]:
        """Return the contents of the tokenizer's files in a model folder, by name."""
        return {FILE: self.to_json().encode()}

    def files_for_transformers(self, languages: Sequence[str]) -> dict[str, bytes]:
        """Return files for transformers' ``AutoTokenizer``, which adds the end token and writes no leading space."""
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
            **dict(zip(MARKS, SPECIAL, strict=True)),
            **dict(zip(("source_lang", "target_lang"), languages, strict=False)),
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": False,
        }
        contents = {FILE: values, SETTINGS: settings}
        return {name: json.dumps(content, ensure_ascii=False, indent=1).encode() for name, content in contents.items()}


@contextmanager
def named_failures(where: object) -> Iterator[None]:
    """Convert any error of the library ``tokenizers`` inside the block to a `ModelFileError` that names the file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises Exception, and for panics of Rust a BaseException
        reason = f"missing: {error.strerror}" if isinstance(error, OSError) else f"damaged: {str(error)[:200]}"
        raise ModelFileError(f"{FILE} is {reason}", where=where, hint="give a complete model folder") from None


def _parsed(text: str) -> Any:
    """Parse a tokenizer; raises `ValueError` for ids beyond `MOST`, since the library would allocate up to the largest id."""
    inner, values = tokenizers_library().Tokenizer.from_str(text), json.loads(text)
    vocabulary = values["model"]["vocab"]
    numbers = [*(vocabulary.values() if isinstance(vocabulary, dict) else ()), *(own["id"] for own in values["added_tokens"])]
    if not all(type(number) is int and 0 <= number < MOST for number in numbers):
        raise ValueError(f"token ids must be from 0 to {MOST:,}")
    return inner


def open_tokenizer(file: Path) -> Any:
    """Read an untrusted file of the library ``tokenizers``; raises `ModelFileError`."""
    with named_failures(file):
        text = read_text(file, LARGEST)
        _require_no_growth(json.loads(text).get("normalizer"))
        return _parsed(text)


def _require_no_growth(normalizer: Any) -> None:
    """Raise `ValueError` for normalizers that could make a text grow exponentially."""
    rest = [normalizer] if normalizer is not None else []
    while rest:
        one = rest.pop()
        if one["type"] == "Sequence":
            rest.extend(one["normalizers"])
        elif one["type"] not in CLEANING and not (one["type"] == "Replace" and len(one["content"]) <= 1):
            raise ValueError(f"its normalizer {str(one)[:80]} is not supported")


def is_numbered(inner: Any) -> bool:
    """Return whether a tokenizer's ids are consecutive from 0."""
    return sorted(inner.get_vocab().values()) == list(range(inner.get_vocab_size()))


def require_vocabulary(count: int) -> None:
    """Raise `ConfigError` for a vocabulary smaller than the number of bytes and special tokens."""
    least = 256 + len(SPECIAL)
    if count < least:
        hint = f"give {least} or more"
        raise ConfigError(f"{count} tokens are fewer than all bytes and special tokens", where="task.vocabulary", hint=hint)


def _empty(library: Any) -> Any:
    """Return an untrained byte-level tokenizer."""
    inner = library.Tokenizer(library.models.BPE())
    inner.add_special_tokens(list(SPECIAL))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    inner.decoder = library.decoders.ByteLevel()
    return inner


def _rules(inner: Any) -> list[Any]:
    """Return the rules by which a tokenizer splits texts; other rules would give other tokens, or run forever."""
    values = json.loads(inner.to_str())
    model = {name: value for name, value in values["model"].items() if name not in ("vocab", "merges")}
    return [model, values["pre_tokenizer"], values["added_tokens"]]


def tokenizers_library() -> Any:
    """Import the library ``tokenizers``; raises `ConfigError` if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        what, hint = "texts need the library tokenizers", 'pip install "vitrail[text]"'
        raise ConfigError(what, where="tokenizers", hint=hint) from None
    return tokenizers
