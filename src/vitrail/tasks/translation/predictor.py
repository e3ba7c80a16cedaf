"""Sentences in one language to sentences in another."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from vitrail.checks import require_at_most, require_positive
from vitrail.data.text.dataset import filled
from vitrail.data.text.tokens import Tokens
from vitrail.deploy.export.packed_linear import fast_copy
from vitrail.deploy.predictor import Predictor, Prepared
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.inference import in_evaluation_mode
from vitrail.models.text.search import Written, beam_search, greedy
from vitrail.models.text.text_model import Aligned, TextModel
from vitrail.plain_text import clean
from vitrail.runtime.device import Precision, pick_device
from vitrail.tasks.answer_table import Row
from vitrail.tasks.translation.answer import Piece, Translated, joined
from vitrail.tasks.translation.ctranslate2 import BATCH, ExportedTranslator
from vitrail.tasks.translation.settings import BEAMS
from vitrail.tasks.translation.weights import TrainedTranslator, longest, open_translator
from vitrail.weights.locate import is_exported_translator

LONGEST = 128
"""Tokens of a text that is translated as one; a longer one is cut where a sentence ends, else between words."""
MOST_BEAMS = 200
"""Their texts look at each other's tokens, so that time grows with the square."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")


class Writer(Protocol):
    """What writes translations, in Python or in an engine."""

    engine: str
    """What computes, and in what precision."""
    preparation: Tokens
    languages: tuple[str, str]
    max_tokens: int

    @property
    def attends(self) -> bool:
        """Whether `alignment` tells where the model looked."""

    def most(self, beams: int) -> int:
        """Tokens, filling included, that are read side by side."""

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        """The translation of each source, which has its end; without ``scores`` these may be 0."""

    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """See `TrainedTranslator.alignment`."""


class InPython:
    """A translator in torch, on the best device."""

    engine = "torch fp32"

    def __init__(self, trained: TrainedTranslator):
        self.device = pick_device()
        trained = in_evaluation_mode(trained, self.device)
        self.model, self.alignment = trained.model, trained.alignment
        self.preparation, self.languages, self.max_tokens = trained.preparation, trained.languages, trained.config.max_tokens

    @cached_property
    def attends(self) -> bool:
        """Whether the model has attention."""
        return self.alignment([self.preparation.end], []) is not None

    @cached_property
    def fast(self) -> TextModel:
        """The model, laid out for writing."""
        return fast_copy(self.model)

    def most(self, beams: int) -> int:
        return BATCH // beams

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        source = filled(sources, self.preparation.pad, self.max_tokens).to(self.device)
        limits = torch.tensor([longest(len(tokens), self.max_tokens) for tokens in sources])
        if beams == 1:
            return greedy(self.fast, source, max_length=limits)
        return [best[0] for best in beam_search(self.fast, source, beams=beams, max_length=limits)]


class Translator(Predictor):
    """A trained translator, ready to answer.

    Args:
        trained: a translator, or the MODEL that it is behind, which may be exported; or a writer that others use, too.
        beams: translations that are followed side by side; 1 takes the likeliest token each time.
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
        """Return the translation of each piece; those of about the same length are translated side by side."""
        return self.write(rows)

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
        """The translation of each text, in order; of an empty one, nothing.

        Args:
            texts: sentences; longer texts are translated sentence by sentence.
            attention: whether to tell where the model looked, too.
            scores: whether to tell how likely translations are, which takes an exported model some time; else it may say 0.
            on_done: called with the number of texts that are done.
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
        """The tokens of a text, with an end; of a long one in pieces of no more than ``longest``, of an empty one none."""
        text = clean(text)
        code = self.tokenizer.language_code(text)  # which every piece has to say
        return list(self._pieces(code, text[len(code) :].strip()))

    def write(
        self,
        pieces: Sequence[list[int]],
        *,
        attention: bool = False,
        scores: bool = True,
        on_done: Callable[[int], None] = lambda place: None,
    ) -> list[Piece]:
        """The translations of pieces of any texts (see `cut`), in order.

        Args:
            pieces: tokens, with an end; pieces of about the same length are translated side by side.
            attention, scores: see `translate`.
            on_done: called with the place of each as it is done.
        """
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))
        found: dict[int, Piece] = {}
        for places in _batches(order, list(map(len, pieces)), self.writer.most(self.beams)):
            together = self.writer.write([pieces[place] for place in places], self.beams, scores=scores)
            for place, written in zip(places, together, strict=True):
                if not math.isfinite(written.score):
                    raise ModelFileError(
                        "the model gives no numbers", where="model", hint="its weights are damaged, or too large"
                    )
                found[place] = self._piece(pieces[place], written, attention)
                on_done(place)
        return [found[place] for place in range(len(pieces))]

    def _piece(self, tokens: list[int], written: Written, attention: bool) -> Piece:
        found = self.writer.alignment(tokens, written.tokens) if attention else None
        if found is not None:
            found = (*found[:2], [[round(weight, 4) for weight in row] for row in found[2].tolist()])
        return Piece(self.tokenizer.decode(written.tokens), written.score, found)

    def _pieces(self, code: str, text: str) -> Iterator[list[int]]:
        if not text:
            return
        (whole,) = self.tokenizer.encode([code + text])
        if len(whole) <= self.longest or len(text) == 1:
            if len(whole) > 1:  # there are characters of no tokens
                yield [*whole[:-1][: self.longest - 1], whole[-1]]
            return
        sentences = _SENTENCE.split(text)
        for part in sentences if len(sentences) > 1 else _halves(text):
            yield from self._pieces(code, part)


AnyTranslator = TrainedTranslator | ExportedTranslator


def open_any(model: str | Path | AnyTranslator) -> AnyTranslator:
    """Return the translator that a MODEL is, in Python or in an engine."""
    if not isinstance(model, str | Path):
        return model
    return ExportedTranslator(model) if is_exported_translator(model) else open_translator(model)


def writer_of(model: str | Path | AnyTranslator | Writer) -> Writer:
    """Return what writes the translations of a translator, or of the MODEL that one is behind."""
    opened: Any = open_any(model) if isinstance(model, str | Path) else model
    return InPython(opened) if isinstance(opened, TrainedTranslator) else opened


def _halves(text: str) -> tuple[str, str]:
    """A text cut at the space that is nearest to its middle, or there."""
    middle = len(text) // 2
    spaces = [match.start() for match in re.finditer(r"\s", text)]
    place = min(spaces, key=lambda space: abs(space - middle), default=middle)
    return text[:place].strip(), text[place:].strip()


def _batches(order: Sequence[int], lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places in ``order`` of growing length, as many together as have no more than so many tokens with their filling."""
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
    """Return the predictor of a trained translator, on the best device; see `vitrail.deploy.predictor.in_python`.

    Raises:
        ConfigError: another precision than fp32.
    """
    if precision not in (None, "fp32"):
        raise ConfigError("a translator in Python computes in fp32", where="--precision", hint="leave it out")
    return Translator(trained)


def translate(
    model: str | Path | AnyTranslator | Translator, texts: str | Sequence[str], *, beams: int | None = None
) -> str | list[str]:
    """Translate a text, or several.

    >>> translate("runs/en-de", "A man rides a bicycle.")  # doctest: +SKIP
    'Ein Mann fährt Fahrrad.'

    Args:
        model: a run folder, a model folder, an exported model, or a translator that is loaded: opening one takes longer than a
            sentence.
        texts: one, or several; empty ones stay empty.
        beams: translations that are followed side by side; 1 is the fastest. A translator's own by default, else 5.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    if isinstance(model, Translator):
        translator = model if beams in (None, model.beams) else Translator(model.writer, beams=beams or 0)
    else:
        translator = Translator(model, beams=BEAMS if beams is None else beams)
    found = [done.text for done in translator.translate([texts] if isinstance(texts, str) else texts, scores=False)]
    return found[0] if isinstance(texts, str) else found
