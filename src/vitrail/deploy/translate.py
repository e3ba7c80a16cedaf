"""Sentences in one language to sentences in another."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vitrail.checks import require_positive
from vitrail.data.loader import EpochLoader
from vitrail.data.text.dataset import filled
from vitrail.data.text.pairs import PairData, clean
from vitrail.models.search import Written, beam_search, greedy
from vitrail.runtime.device import pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.evaluation import answering
from vitrail.tasks.evaluation import evaluate as evaluate_task
from vitrail.tasks.settings import TranslationSettings
from vitrail.tasks.translation import Translation, TranslationMetrics
from vitrail.weights.translator import Aligned, TrainedTranslator, longest, open_translator

BEAMS = 5
"""Translations that are followed side by side where nobody says otherwise."""
LONGEST = 128
"""Tokens of a text that is translated as one; a longer one is cut where a sentence ends, else between words."""
BATCH = 4096
"""Tokens that are translated side by side, all beams together."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
_LINE = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True)
class Translated:
    """A text and its translation."""

    source: str
    text: str
    """On one line."""
    score: float
    """The logarithm of its probability, by the model."""
    alignments: tuple[Aligned, ...] = ()
    """Of each piece that was translated by itself: tokens that were read, tokens that were written, and how much each of these
    looked at each of those; nothing where it was not asked for, or the model has no attention."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        found: dict[str, Any] = {"source": self.source, "translation": self.text, "score": self.score}
        if self.alignments:
            names = ("source_tokens", "tokens", "attention")
            found["attention"] = [dict(zip(names, alignment, strict=True)) for alignment in self.alignments]
        return found


class Piece(NamedTuple):
    """The translation of as much as is translated as one."""

    text: str
    score: float
    """The logarithm of its probability, by the model."""
    alignment: Aligned | None
    """Tokens that were read, tokens that were written, and how much each of these looked at each of those."""


class Translator:
    """A trained translator, ready to answer.

    Args:
        trained: a translator, or the MODEL that it is behind.
        beams: translations that are followed side by side; 1 takes the likeliest token each time.
    """

    def __init__(self, trained: TrainedTranslator | str | Path, *, beams: int = BEAMS):
        require_positive(beams=beams)
        self.trained = trained if isinstance(trained, TrainedTranslator) else open_translator(trained)
        self.model, self.tokenizer, self.beams = self.trained.model, self.trained.preparation, beams
        self.device = pick_device()
        self.model.to(self.device).eval()

    def translate(
        self, texts: Sequence[str], *, attention: bool = False, on_done: Callable[[int], None] = lambda count: None
    ) -> list[Translated]:
        """The translation of each text, in order; of an empty one, nothing.

        Args:
            texts: sentences; longer texts are translated sentence by sentence.
            attention: whether to tell where the model looked, too.
            on_done: called with the number of texts that are done.
        """
        cut = [self.cut(text) for text in texts]
        texts_of = [number for number, pieces in enumerate(cut) for _ in pieces]
        left = [len(pieces) for pieces in cut]
        on_done(left.count(0))

        def count(place: int) -> None:
            left[texts_of[place]] -= 1
            on_done(int(not left[texts_of[place]]))

        written = iter(self.write([tokens for pieces in cut for tokens in pieces], attention=attention, on_done=count))
        return [joined(text, [next(written) for _ in pieces]) for text, pieces in zip(texts, cut, strict=True)]

    def cut(self, text: str) -> list[list[int]]:
        """The tokens of a text, with an end; of a long one in pieces of no more than `LONGEST`, of an empty one none."""
        return list(self._pieces(clean(text)))

    def write(
        self, pieces: Sequence[list[int]], *, attention: bool = False, on_done: Callable[[int], None] = lambda place: None
    ) -> list[Piece]:
        """The translations of pieces of any texts (see `cut`), in order.

        Args:
            pieces: tokens, with an end; those of about the same length are translated side by side.
            attention: whether to tell where the model looked, too.
            on_done: called with the place of each as it is done.
        """
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))
        found: dict[int, Piece] = {}
        for places in _batches(order, list(map(len, pieces)), BATCH // self.beams):
            source = filled([pieces[place] for place in places]).to(self.device)
            for place, written in zip(places, self._search(source), strict=True):
                found[place] = self._piece(pieces[place], written, attention)
                on_done(place)
        return [found[place] for place in range(len(pieces))]

    def _search(self, source: torch.Tensor) -> list[Written]:
        if self.beams == 1:
            return greedy(self.model, source, max_length=longest(source))
        return [best[0] for best in beam_search(self.model, source, beams=self.beams, max_length=longest(source))]

    def _piece(self, tokens: list[int], written: Written, attention: bool) -> Piece:
        found = self.trained.alignment(tokens, written.tokens) if attention else None
        if found is not None:
            found = (*found[:2], [[round(weight, 4) for weight in row] for row in found[2].tolist()])
        return Piece(self.tokenizer.decode(written.tokens), written.score, found)

    def _pieces(self, text: str) -> Iterator[list[int]]:
        if not text:
            return
        (whole,) = self.tokenizer.encode([text])
        if len(whole) <= LONGEST:
            yield whole
            return
        sentences = _SENTENCE.split(text)
        for part in sentences if len(sentences) > 1 else _halves(text):
            yield from self._pieces(part)


def joined(text: str, pieces: Sequence[Piece]) -> Translated:
    """The translation of a text, put together of those of its pieces."""
    whole = _LINE.sub(" ", " ".join(piece.text for piece in pieces))
    alignments = tuple(piece.alignment for piece in pieces if piece.alignment is not None)
    return Translated(text, whole, sum(piece.score for piece in pieces), alignments)


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


def translate(
    model: str | Path | TrainedTranslator | Translator, texts: str | Sequence[str], *, beams: int = BEAMS
) -> str | list[str]:
    """Translate a text, or several.

    >>> translate("runs/en-de", "A man rides a bicycle.")  # doctest: +SKIP
    'Ein Mann fährt Fahrrad.'

    Args:
        model: a run folder, a model folder, or a translator that is loaded: opening one takes longer than a sentence.
        texts: one, or several; empty ones stay empty.
        beams: translations that are followed side by side; 1 is the fastest.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    translator = model if isinstance(model, Translator) else Translator(model, beams=beams)
    found = [done.text for done in translator.translate([texts] if isinstance(texts, str) else texts)]
    return found[0] if isinstance(texts, str) else found


def evaluate_translator(
    model: str | Path | TrainedTranslator,
    open_pairs: Callable[[TrainedTranslator], tuple[PairData, str, TranslationSettings]],
    *,
    on_start: Callable[[int], None] | None = None,
    on_batch: Callable[[int], None] | None = None,
    group: Processes = ALONE,
) -> tuple[TranslationMetrics, str]:
    """BLEU, chrF and loss of a translator on pairs of sentences, and the split of them; see `vitrail.evaluate`.

    Args:
        model: a translator, or the MODEL that it is behind.
        open_pairs: gives what is read with what should be written, which split of it is meant, and how it is searched.
        on_start, on_batch: called with the number of sentences; with the size of every finished batch.
        group: the processes that do it together.
    """
    trained = model if isinstance(model, TrainedTranslator) else open_translator(model)
    source, split, settings = open_pairs(trained)
    pairs, device = source.split(split), pick_device()
    if on_start:
        on_start(len(pairs))
    task = Translation(trained.model, trained.preparation, settings).to(device)
    loader = EpochLoader(task.dataset(pairs), BATCH, shuffle=False, part=(group.rank, group.count))
    with answering(task, device) as answer:
        return evaluate_task(answer, loader, task.metrics(keep=True), on_batch=on_batch, group=group), split
