"""Prediction with translation models."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from vitrail.checks import require_at_most, require_positive
from vitrail.data.text.dataset import filled
from vitrail.deploy.fast_writing import fast_copy, require_scores
from vitrail.deploy.predictor import Predictor, Prepared
from vitrail.errors import ConfigError
from vitrail.models.inference import in_evaluation_mode
from vitrail.models.text.search import Written, beam_search, greedy
from vitrail.models.text.text_model import Aligned
from vitrail.plain_text import clean
from vitrail.runtime.device import Precision, pick_device
from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row
from vitrail.tasks.translation.ctranslate2 import BATCH, ExportedTranslator
from vitrail.tasks.translation.settings import BEAMS
from vitrail.tasks.translation.weights import TrainedTranslator, longest, open_translator
from vitrail.weights.locate import is_exported_translator

LONGEST = 128
"""Most tokens that are translated as one piece; a longer text is cut at the ends of sentences, otherwise between words."""
MOST_BEAMS = 200
"""Most beams: the time grows with the square of their number."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
_LINE = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True)
class Translated(Answer):
    """A text and its translation."""

    source: str
    text: str
    """The translation, on one line."""
    score: float
    """The logarithm of the translation's probability."""
    alignments: tuple[Aligned, ...] = ()
    """The attention of each piece of the text; empty if it was not requested or the model has none."""

    def to_json(self, name: str = "") -> dict[str, Any]:
        """Return the translation as JSON values; ``name`` is not used."""
        document: dict[str, Any] = {"source": self.source, "translation": self.text, "score": self.score}
        if self.alignments:
            names = ("source_tokens", "tokens", "attention")
            document["attention"] = [dict(zip(names, alignment, strict=True)) for alignment in self.alignments]
        return document

    def rows(self) -> list[Row]:
        return [[self.source, self.text, f"{self.score:.4f}"]]

    def lines(self) -> list[str]:
        return [self.text]


class Piece(NamedTuple):
    """The translation of a piece of text."""

    text: str
    score: float
    alignment: Aligned | None


def joined(text: str, pieces: Sequence[Piece]) -> Translated:
    """Return the translation of a text, from the translations of its pieces."""
    texts, scores, alignments = zip(*pieces, strict=True) if pieces else ((), (), ())
    return Translated(text, _LINE.sub(" ", " ".join(texts)), sum(scores), tuple(filter(None, alignments)))


class InPython:
    """A translation model for tokens in PyTorch, on the best device."""

    engine = "torch fp32"

    def __init__(self, trained: TrainedTranslator):
        self.device = pick_device()
        trained = in_evaluation_mode(trained, self.device)
        self.model, self.alignment = trained.model, trained.alignment
        self.fast = fast_copy(self.model)
        self.preparation, self.languages, self.max_tokens = trained.preparation, trained.languages, trained.config.max_tokens

    @cached_property
    def attends(self) -> bool:
        return self.alignment([self.preparation.end], []) is not None

    def most(self, beams: int) -> int:
        """Return the most source tokens in a batch, with padding."""
        return BATCH // beams

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        """Return the translation of each source, which ends with the end token."""
        source = filled(sources, self.preparation.pad, self.max_tokens).to(self.device)
        limits = torch.tensor([longest(len(tokens), self.max_tokens) for tokens in sources])
        if beams == 1:
            return greedy(self.fast, source, max_length=limits)
        return [best for (best,) in beam_search(self.fast, source, beams=beams, max_length=limits)]


Writer = InPython | ExportedTranslator
"""A translation model for tokens, in PyTorch or exported."""


class Translator(Predictor):
    """A predictor of translations, from a loaded translation model, a MODEL (also exported), or a `Writer`.

    ``beams`` is the beam width; 1 is greedy decoding.
    """

    task: ClassVar[str] = "translate"

    def __init__(self, trained: "str | Path | AnyTranslator | Writer", *, beams: int = BEAMS):
        require_positive(beams=beams)
        require_at_most("beams", beams, MOST_BEAMS)
        self.writer = writer_of(trained)
        self.name, self.preparation = self.writer.engine, self.writer.preparation
        self.tokenizer, self.beams, self.longest = self.writer.preparation, beams, min(LONGEST, self.writer.max_tokens)

    @property
    def network(self) -> Callable[..., list[Written]]:
        return self.writer.write

    @property
    def head(self) -> Row:
        return ["source", "translation", "score"]

    def preprocess(self, source: str) -> Prepared:
        return Prepared(self.cut(source), source)

    def compute(self, rows: Sequence[list[int]], batch_size: int = 0) -> list[Piece]:
        return self.write(rows)  # it forms batches itself

    def postprocess(self, outputs: Iterable[Piece], prepared: Sequence[Prepared]) -> list[Translated]:
        pieces = iter(outputs)
        return [joined(one.context, [next(pieces) for _ in one.rows]) for one in prepared]

    def translate(
        self,
        texts: Sequence[str],
        *,
        attention: bool = False,
        scores: bool = True,
        on_done: Callable[[int], None] = lambda count: None,
    ) -> list[Translated]:
        """Return the translation of each text, in order; the translation of an empty text is empty.

        Args:
            texts: sentences; longer texts are translated sentence by sentence.
            attention: also return the attention.
            scores: also return scores, for which an exported model needs more time; otherwise they may be 0.
            on_done: called repeatedly with the number of texts that were completed since the last call.
        """
        prepared = [self.preprocess(text) for text in texts]
        texts_of = [number for number, one in enumerate(prepared) for _ in one.rows]
        left = [len(one.rows) for one in prepared]
        on_done(left.count(0))

        def count(place: int) -> None:
            left[texts_of[place]] -= 1
            on_done(int(not left[texts_of[place]]))

        rows = [tokens for one in prepared for tokens in one.rows]
        return self.postprocess(self.write(rows, attention=attention, scores=scores, on_done=count), prepared)

    def cut(self, text: str) -> list[list[int]]:
        """Return the tokens of a text in pieces of at most ``longest``, each with an end token; no piece for an empty text."""
        text = clean(text)
        code = self.tokenizer.language_code(text)  # every piece begins with it
        return list(self._pieces(code, text[len(code) :].strip()))

    def write(
        self,
        pieces: Sequence[list[int]],
        *,
        attention: bool = False,
        scores: bool = True,
        on_done: Callable[[int], None] = lambda place: None,
    ) -> list[Piece]:
        """Return the translations of the pieces of `cut`, in order; see `translate`.

        Pieces of about the same length are batched together; ``on_done`` is called with the index of each.
        """
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))
        translations: dict[int, Piece] = {}
        for places in _batches(order, list(map(len, pieces)), self.writer.most(self.beams)):
            together = self.writer.write([pieces[place] for place in places], self.beams, scores=scores)
            for place, written in zip(places, require_scores(together), strict=True):
                translations[place] = self._piece(pieces[place], written, attention)
                on_done(place)
        return [translations[place] for place in range(len(pieces))]

    def _piece(self, tokens: list[int], written: Written, attention: bool) -> Piece:
        aligned = self.writer.alignment(tokens, written.tokens) if attention else None
        if aligned is not None:
            aligned = (*aligned[:2], [[round(weight, 4) for weight in row] for row in aligned[2].tolist()])
        return Piece(self.tokenizer.decode(written.tokens), written.score, aligned)

    def _pieces(self, code: str, text: str) -> Iterator[list[int]]:
        if not text:
            return
        (whole,) = self.tokenizer.encode([code + text])
        if len(whole) <= self.longest or len(text) == 1:
            if len(whole) > 1:  # some characters have no tokens
                yield [*whole[:-1][: self.longest - 1], whole[-1]]
            return
        sentences = _SENTENCE.split(text)
        for part in sentences if len(sentences) > 1 else _halves(text):
            yield from self._pieces(code, part)


AnyTranslator = TrainedTranslator | ExportedTranslator


def open_any(model: Any) -> Any:
    """Return the translation model of a MODEL, in PyTorch or exported; return any other object unchanged."""
    if not isinstance(model, str | Path):
        return model
    return ExportedTranslator(model) if is_exported_translator(model) else open_translator(model)


def writer_of(model: str | Path | AnyTranslator | Writer) -> Writer:
    """Return the `Writer` of a translation model or of a MODEL."""
    opened = open_any(model)
    return InPython(opened) if isinstance(opened, TrainedTranslator) else opened


def _halves(text: str) -> tuple[str, str]:
    """Cut a text at the space that is nearest to its middle, or in the middle if it has no space."""
    middle = len(text) // 2
    spaces = [match.start() for match in re.finditer(r"\s", text)]
    place = min(spaces, key=lambda space: abs(space - middle), default=middle)
    return text[:place].strip(), text[place:].strip()


def _batches(order: Sequence[int], lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield batches of indices with at most ``most`` tokens, with padding, or of a single longer text."""
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) + 1) * lengths[place] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def in_python(
    trained: TrainedTranslator, precision: Precision | None = None, device: Any = "cpu", *, prepacked: bool = True
) -> Translator:
    """Return the predictor of a trained model, on the best device; raises `ConfigError` for another precision than fp32."""
    if precision not in (None, "fp32"):
        raise ConfigError("a translator in Python computes in fp32", where="--precision", hint="leave out --precision")
    return Translator(trained)


def translate(
    model: str | Path | AnyTranslator | Translator, texts: str | Sequence[str], *, beams: int | None = None
) -> str | list[str]:
    """Translate a text, or several.

    >>> translate("runs/en-de", "A man rides a bicycle.")  # doctest: +SKIP
    'Ein Mann fährt Fahrrad.'

    Args:
        model: a run folder, a model folder, an exported model, or a loaded translation model, which is faster for many calls.
        texts: one text, or several; the translation of an empty text is empty.
        beams: beam width; 1 is the fastest. By default that of a loaded `Translator`, otherwise 5.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    writer, own = (model.writer, model.beams) if isinstance(model, Translator) else (model, BEAMS)
    translator = Translator(writer, beams=own if beams is None else beams)
    done = [one.text for one in translator.translate([texts] if isinstance(texts, str) else texts, scores=False)]
    return done[0] if isinstance(texts, str) else done
