"""The task of translation: loss, metrics and beam search."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vitrail.data.images.augment import Augmentation
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.sampler import some_items
from vitrail.data.text.dataset import PairDataset
from vitrail.data.text.tokens import Tokens
from vitrail.errors import ConfigError
from vitrail.models.text.search import beam_search
from vitrail.models.text.text_model import TextModel
from vitrail.tasks.floor import Floor
from vitrail.tasks.metrics import METRICS
from vitrail.tasks.task import Answers, Metrics, Options
from vitrail.tasks.token_task import TokenMetrics, TokenTask
from vitrail.tasks.translation.pairs import Pair, PairData
from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.weights import TrainedTranslator, longest

BY_SENTENCE = METRICS["chrf"]
"""The metric for single sentences; BLEU is 0 for a sentence of fewer than four words."""
TRIED, TRIED_ON = 10, 100
"""Number of sentences to try as the one translation for all, and of references for the comparison."""
USUAL = 32
"""Assumed tokens of a sentence, with padding, before the data is known."""


class Translation(TokenTask):
    """Cross-entropy with every token of the translation, given those before it (teacher forcing)."""

    name = "translate"
    scores_slower: ClassVar[bool] = True

    def __init__(self, model: TextModel, tokenizer: Tokens, settings: TranslationSettings, *, label_smoothing: float = 0.0):
        super().__init__(model, tokenizer.pad, label_smoothing=label_smoothing)
        self.tokenizer, self.settings = tokenizer, settings

    @classmethod
    def create(cls, model: TextModel, preparation: Tokens, data: PairData, options: Options) -> Self:
        assert isinstance(options.task, TranslationSettings)
        return cls(model, preparation, options.task, label_smoothing=options.label_smoothing)

    def dataset(
        self, items: Sequence[Pair], augmentation: Augmentation | None = None, *, seed: int = 0, transform: Any = None
    ) -> PairDataset:
        return pair_dataset(self.tokenizer, items, seed, most=self.model.config.max_tokens)

    def items_in(self, batch_size: int) -> int:
        return max(1, batch_size // USUAL)

    def encode(self, batch: Batch) -> Any:
        return self.model.encode(batch["source"])

    def answer(self, batch: Batch) -> Answers:
        return self.token_answers(batch, self.encode(batch))

    def metrics(self, *, keep: bool = False) -> "TranslationMetrics":
        return TranslationMetrics(self.tokenizer, self.write if keep else None)

    def floor(self, metrics: Metrics, items: Sequence[Pair], known: Sequence[Pair]) -> Floor | None:
        """Return the scores of one training sentence as the translation of all ``items``: the best of a few sentences."""
        some = [item.target for item in some_items(items, TRIED_ON, seed=0)]

        def scores(sentence: str, references: Sequence[str]) -> dict[str, Any]:
            return translation_scores([sentence] * len(references), references)

        tried = {pair.target for pair in some_items(known, TRIED, seed=0)}
        best = max(sorted(tried), key=lambda sentence: scores(sentence, some)["bleu"])
        return Floor("one sentence for all", scores(best, [item.target for item in items]))

    def write(self, source: Tensor) -> list[str]:
        """Return the translation of each source, tokens (B, S), by beam search."""
        lengths, most = (source != self.pad).sum(dim=1).tolist(), self.model.config.max_tokens
        limits = torch.tensor([longest(length, most) for length in lengths])
        written = beam_search(self.model, source, beams=self.settings.beams, max_length=limits)
        return [self.tokenizer.decode(best.tokens) for (best,) in written]

    def trained(self, model: TextModel) -> TrainedTranslator:
        return TrainedTranslator(model, self.tokenizer, (self.settings.source, self.settings.target))


create = Translation.create


def pair_dataset(tokenizer: Tokens, items: Sequence[Pair], seed: int = 0, *, most: int) -> PairDataset:
    """Return pairs of sentences as tokens, for a model that takes at most ``most`` tokens."""
    sources = tokenizer.encode([pair.source for pair in items])
    targets = tokenizer.encode_targets([pair.target for pair in items])
    names = [pair.name for pair in items]
    return PairDataset(names, sources, targets, seed, pad=tokenizer.pad, start=tokenizer.start, most=most)


class TranslationMetrics(TokenMetrics):
    """Loss and accuracy per token; with ``write``, which translates sources (B, S), also BLEU and chrF."""

    def __init__(self, tokenizer: Tokens, write: Callable[[Tensor], list[str]] | None):
        super().__init__(tokenizer.pad)
        self.write = write

    def update(self, answers: Answers, batch: Batch) -> None:
        self.add_tokens(answers, batch["labels"])
        if self.write and len(batch["labels"]):
            self.add_texts(batch["number"], self.write(batch["source"].to(answers["loss"].device)))

    def scores(self) -> dict[str, Any]:
        scores = translation_scores(*list(zip(*self.texts, strict=True))[1:]) if self.texts else {}
        return {**scores, **super().scores(), "sentences": int(self.sums[3])}


def translation_scores(written: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
    """Return sacrebleu's BLEU (Papineni et al. 2002) and chrF (Popović 2015): cased, with the tokenizer 13a."""
    bleu, chrf = _sacrebleu()
    texts, columns = list(written), [list(references)]
    score = bleu.corpus_score(texts, columns)
    return {"bleu": score.score, "chrf": chrf.corpus_score(texts, columns).score, "signature": str(bleu.get_signature())}


def score_by_sentence(written: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return `BY_SENTENCE` of each sentence."""
    _, chrf = _sacrebleu()
    return [chrf.sentence_score(text, [reference]).score for text, reference in zip(written, references, strict=True)]


def _sacrebleu() -> tuple[Any, Any]:
    """Create sacrebleu's BLEU and chrF; raises `ConfigError` if the extra ``text`` is not installed."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        what, hint = "sacrebleu, which scores translations, is not installed", 'pip install "vitrail[text]"'
        raise ConfigError(what, where="evaluate", hint=hint) from None
    return BLEU(), CHRF()
