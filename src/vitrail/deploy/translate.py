"""Sentences in one language to sentences in another."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import torch

from vitrail.checks import require_positive
from vitrail.data.batches import Batch
from vitrail.data.loader import EpochLoader
from vitrail.data.text.dataset import PairDataset, filled
from vitrail.data.text.pairs import Pair, PairData, clean
from vitrail.data.text.tokens import Tokens
from vitrail.deploy.ctranslate2 import ExportedTranslator, is_exported
from vitrail.models.search import Written, beam_search, greedy
from vitrail.runtime.device import pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.evaluation import answering
from vitrail.tasks.evaluation import evaluate as evaluate_task
from vitrail.tasks.settings import TranslationSettings
from vitrail.tasks.task import Answers
from vitrail.tasks.translation import Translation, TranslationMetrics, pair_dataset
from vitrail.weights.locate import is_of_texts
from vitrail.weights.translator import Aligned, TrainedTranslator, longest, open_translator

BEAMS = 5
"""Translations that are followed side by side where nobody says otherwise."""
LONGEST = 128
"""Tokens of a text that is translated as one; a longer one is cut where a sentence ends, else between words."""
BATCH = 4096
"""Tokens that are translated side by side, all beams together."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
_LINE = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


OpenPairs = Callable[[Any], tuple[PairData, str, TranslationSettings]]
"""Of a translator, the sentences that it is evaluated on, which split of them is meant, and how it is searched."""


@dataclass(frozen=True)
class Translated:
    """A text and its translation."""

    source: str
    text: str
    """On one line."""
    score: float
    """The logarithm of its probability, by the model."""
    alignments: tuple[tuple[list[str], list[str], list[list[float]]], ...] = ()
    """Of each piece that was translated by itself: tokens that were read, tokens that were written, and how much each of these
    looked at each of those; nothing where it was not asked for, or the model has no attention."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        found: dict[str, Any] = {"source": self.source, "translation": self.text, "score": self.score}
        if self.alignments:
            names = ("source_tokens", "tokens", "attention")
            found["attention"] = [dict(zip(names, alignment, strict=True)) for alignment in self.alignments]
        return found


class Writer(Protocol):
    """What writes translations, in Python or in an engine."""

    preparation: Tokens
    languages: tuple[str, str]
    max_tokens: int

    def most(self, beams: int) -> int:
        """Tokens, filling included, that are read side by side."""

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        """The translation of each source, which has its end; without ``scores`` these may be 0."""

    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """See `TrainedTranslator.alignment`."""


class InPython:
    """A translator in torch, on the best device."""

    def __init__(self, trained: TrainedTranslator):
        self.device, self.model, self.alignment = pick_device(), trained.model, trained.alignment
        self.preparation, self.languages, self.max_tokens = trained.preparation, trained.languages, trained.config.max_tokens
        self.model.to(self.device).eval()

    def most(self, beams: int) -> int:
        return BATCH // beams

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        source = filled(sources, self.preparation.pad).to(self.device)
        limits = torch.tensor([longest(len(tokens), self.max_tokens) for tokens in sources])
        if beams == 1:
            return greedy(self.model, source, max_length=limits)
        return [best[0] for best in beam_search(self.model, source, beams=beams, max_length=limits)]


class Translator:
    """A trained translator, ready to answer.

    Args:
        trained: a translator, or the MODEL that it is behind, which may be exported.
        beams: translations that are followed side by side; 1 takes the likeliest token each time.
    """

    def __init__(self, trained: TrainedTranslator | ExportedTranslator | str | Path, *, beams: int = BEAMS):
        require_positive(beams=beams)
        self.writer = _writer(trained)
        self.tokenizer, self.beams, self.longest = self.writer.preparation, beams, min(LONGEST, self.writer.max_tokens)

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
        cut = [list(self._pieces(clean(text))) for text in texts]
        pieces = [(number, tokens) for number, parts in enumerate(cut) for tokens in parts]
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place][1]))
        written: dict[int, Written] = {}
        left = [len(parts) for parts in cut]
        on_done(left.count(0))
        for places in _batches(order, [len(tokens) for _, tokens in pieces], self.writer.most(self.beams)):
            found = self.writer.write([pieces[place][1] for place in places], self.beams, scores=scores)
            written.update(zip(places, found, strict=True))
            for place in places:
                left[pieces[place][0]] -= 1
                on_done(int(not left[pieces[place][0]]))
        results: list[list[tuple[list[int], Written]]] = [[] for _ in texts]
        for place, (number, tokens) in enumerate(pieces):
            results[number].append((tokens, written[place]))
        return [self._joined(text, parts, attention) for text, parts in zip(texts, results, strict=True)]

    def _joined(self, text: str, parts: Sequence[tuple[list[int], Written]], attention: bool) -> Translated:
        words = [self.tokenizer.decode(written.tokens) for _, written in parts]
        found = [self.writer.alignment(tokens, written.tokens) for tokens, written in parts] if attention else []
        alignments = [
            (read, wrote, [[round(weight, 4) for weight in row] for row in weights.tolist()])
            for read, wrote, weights in filter(None, found)
        ]
        joined = _LINE.sub(" ", " ".join(words))
        return Translated(text, joined, sum(written.score for _, written in parts), tuple(alignments))

    def _pieces(self, text: str) -> Iterator[list[int]]:
        """The tokens of a text, with an end; of a long one in pieces of no more than ``longest``."""
        if not text:
            return
        (whole,) = self.tokenizer.encode([text])
        if len(whole) <= self.longest:
            yield whole
            return
        sentences = _SENTENCE.split(text)
        for part in sentences if len(sentences) > 1 else _halves(text):
            yield from self._pieces(part)


AnyTranslator = TrainedTranslator | ExportedTranslator


def is_translator(model: object) -> TypeGuard[str | Path | AnyTranslator]:
    """Whether a model, or what is behind a MODEL on this machine, translates texts."""
    return isinstance(model, TrainedTranslator | ExportedTranslator) or is_of_texts(model) or is_exported(model)


def _writer(model: TrainedTranslator | ExportedTranslator | str | Path) -> Writer:
    if is_exported(model):
        return ExportedTranslator(model)
    if isinstance(model, ExportedTranslator):
        return model
    return InPython(model if isinstance(model, TrainedTranslator) else open_translator(model))


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
    model: str | Path | TrainedTranslator | ExportedTranslator | Translator, texts: str | Sequence[str], *, beams: int = BEAMS
) -> str | list[str]:
    """Translate a text, or several.

    >>> translate("runs/en-de", "A man rides a bicycle.")  # doctest: +SKIP
    'Ein Mann fährt Fahrrad.'

    Args:
        model: a run folder, a model folder, an exported model, or a translator that is loaded: opening one takes longer than a
            sentence.
        texts: one, or several; empty ones stay empty.
        beams: translations that are followed side by side; 1 is the fastest.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    translator = model if isinstance(model, Translator) else Translator(model, beams=beams)
    found = [done.text for done in translator.translate([texts] if isinstance(texts, str) else texts, scores=False)]
    return found[0] if isinstance(texts, str) else found


def evaluate_translator(
    model: str | Path | TrainedTranslator | ExportedTranslator,
    open_pairs: OpenPairs,
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
    exported = ExportedTranslator(model) if is_exported(model) else model
    trained = open_translator(exported) if isinstance(exported, str | Path) else exported
    source, split, settings = open_pairs(trained)
    pairs, device = source.split(split), pick_device()
    if on_start:
        on_start(len(pairs))
    if isinstance(trained, ExportedTranslator):
        asked = InEngine(trained, settings.beams)
        opened: AbstractContextManager[Callable[[Batch], Answers]] = nullcontext(asked.answer)
        metrics, dataset = TranslationMetrics(asked, keep=True), asked.dataset(pairs)
    else:
        task = Translation(trained.model, trained.preparation, settings).to(device)
        metrics, dataset, opened = task.metrics(keep=True), task.dataset(pairs), answering(task, device)
    metrics.references = [pair.target for pair in pairs]
    loader = EpochLoader(dataset, BATCH, shuffle=False, part=(group.rank, group.count))
    with opened as answer:
        return evaluate_task(answer, loader, metrics, on_batch=on_batch, group=group), split


class InEngine:
    """An exported translator as it is evaluated."""

    def __init__(self, exported: ExportedTranslator, beams: int):
        self.exported, self.tokenizer, self.beams = exported, exported.preparation, beams

    def dataset(self, pairs: Sequence[Pair]) -> PairDataset:
        """See `pair_dataset`."""
        return pair_dataset(self.tokenizer, pairs)

    def answer(self, batch: Batch) -> Answers:
        """Of each sentence the sum of the losses of its tokens, (B,)."""
        sides = (self._tokens(batch[name]) for name in ("source", "labels"))
        return {"loss": torch.tensor([-sum(found) for found in self.exported.log_probabilities(*sides)])}

    def write(self, source: torch.Tensor) -> list[str]:
        """The translation of each of (B, S) tokens."""
        found = self.exported.write(self._tokens(source), self.beams, scores=False)
        return [self.tokenizer.decode(written.tokens) for written in found]

    def _tokens(self, rows: torch.Tensor) -> list[list[int]]:
        return [[token for token in row if token != self.tokenizer.pad] for row in rows.tolist()]
