"""From one language to another."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

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
from vitrail.runtime.processes import Processes
from vitrail.tasks.floor import Floor
from vitrail.tasks.metrics import METRICS
from vitrail.tasks.task import Answers, Metrics, Options
from vitrail.tasks.token_task import TokenTask
from vitrail.tasks.translation.pairs import Pair, PairData
from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.weights import TrainedTranslator, longest

BY_SENTENCE = METRICS["chrf"]
"""The metric of a single sentence; BLEU is 0 of one with fewer than four words."""
TRIED, TRIED_ON = 10, 100
"""Sentences that are tried as the one for all, and translations that they are compared with."""
USUAL = 32
"""Tokens of a sentence, with what fills it up, where a number is needed before any is seen."""


class Translation(TokenTask):
    """Cross-entropy with every token of the translation, given those before it (teacher forcing).

    Args:
        model: sources and targets to logits of the next token.
        tokenizer: of both languages.
        settings: the languages.
        label_smoothing: share of the target that is spread over all tokens.
    """

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
        """Of each sentence the sum of the losses of its tokens, and how many of them are the likeliest: (B,) each."""
        return self.token_answers(batch, self.encode(batch))

    def metrics(self, *, keep: bool = False) -> "TranslationMetrics":
        return TranslationMetrics(self, keep=keep)

    def floor(self, metrics: Metrics, items: Sequence[Pair], known: Sequence[Pair]) -> Floor | None:
        """Return the scores of one known sentence for all of the ``items``: of a few, the best one."""
        wanted = [item.target for item in some_items(items, TRIED_ON, seed=0)]

        def scores(sentence: str, wanted: Sequence[str]) -> dict[str, Any]:
            return translation_scores([sentence] * len(wanted), wanted)

        tried = {pair.target for pair in some_items(known, TRIED, seed=0)}
        best = max(sorted(tried), key=lambda sentence: scores(sentence, wanted)["bleu"])
        return Floor("one sentence for all", scores(best, [item.target for item in items]))

    def write(self, source: Tensor) -> list[str]:
        """The translation of each of (B, S) tokens, by beam search."""
        lengths, most = (source != self.tokenizer.pad).sum(dim=1).tolist(), self.model.config.max_tokens
        limits = torch.tensor([longest(length, most) for length in lengths])
        found = beam_search(self.model, source, beams=self.settings.beams, max_length=limits)
        return [self.tokenizer.decode(best[0].tokens) for best in found]

    def trained(self, model: TextModel) -> TrainedTranslator:
        return TrainedTranslator(model, self.tokenizer, (self.settings.source, self.settings.target))


def pair_dataset(tokenizer: Tokens, items: Sequence[Pair], seed: int = 0, *, most: int) -> PairDataset:
    """Pairs of sentences as tokens, for a model that has positions for ``most``."""
    sources = tokenizer.encode([pair.source for pair in items])
    targets = tokenizer.encode_targets([pair.target for pair in items])
    names = [pair.name for pair in items]
    return PairDataset(names, sources, targets, seed, pad=tokenizer.pad, start=tokenizer.start, most=most)


class Writes(Protocol):
    """What writes translations of tokens."""

    tokenizer: Tokens

    def write(self, source: Tensor) -> list[str]:
        """The translation of each of (B, S) tokens."""


class TranslationMetrics(Metrics):
    """Loss and accuracy per token; with ``keep`` also BLEU and chrF of the translations that the model writes by itself.

    Accuracy is left out where the answers do not tell which tokens are the likeliest.
    """

    references: Sequence[str] | None = None
    """Of all sentences, by their numbers, what should be written; None for what their tokens say, which may be less."""

    def __init__(self, task: Writes, *, keep: bool = False):
        self.task, self.keep, self.accurate = task, keep, True
        self.sums = torch.zeros(4, dtype=torch.float64)  # loss, right tokens, tokens, sentences
        self.texts: list[tuple[int, str, str]] = []
        """Of every sentence its number, what was written, and what should have been."""

    def take_items(self, items: Sequence[Pair]) -> None:
        """The sentences, whose translations may have letters that tokens do not hold."""
        self.references = [item.target for item in items]

    def update(self, answers: Answers, batch: Batch) -> None:
        labels = batch["labels"]
        self.accurate = "right" in answers
        right = answers["right"].sum() if self.accurate else torch.tensor(0.0)
        sums = answers["loss"].sum(), right, (labels != self.task.tokenizer.pad).sum(), torch.tensor(len(labels))
        self.sums += torch.stack([number.cpu().double() for number in sums])
        if self.keep and len(labels):
            written = self.task.write(batch["source"].to(answers["loss"].device))
            numbers = batch["number"].tolist()
            if self.references is None:
                wanted = [self.task.tokenizer.decode(tokens) for tokens in labels.tolist()]
            else:
                wanted = [self.references[number] for number in numbers]
            self.texts += zip(numbers, written, wanted, strict=True)

    def reduce(self, group: Processes) -> None:
        self.sums = group.all_reduce(self.sums)
        self.texts = group.gathered(self.texts)

    def scores(self) -> dict[str, Any]:
        loss, right, tokens, sentences = self.sums.tolist()
        scores = translation_scores(*list(zip(*self.texts, strict=True))[1:]) if self.texts else {}
        tokens = max(1.0, tokens)
        accuracy = {"token_accuracy": right / tokens} if self.accurate else {}
        return {**scores, "loss": loss / tokens, **accuracy, "sentences": int(sentences)}


def translation_scores(written: Sequence[str], wanted: Sequence[str]) -> dict[str, float | str]:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) of some translations, by sacrebleu: cased, tokenised by 13a.

    Raises:
        ConfigError: the extra ``text`` is not installed.
    """
    bleu, chrf = _sacrebleu()
    score = bleu.corpus_score(list(written), [list(wanted)])
    signature = str(bleu.get_signature())
    return {"bleu": score.score, "chrf": chrf.corpus_score(list(written), [list(wanted)]).score, "signature": signature}


def score_by_sentence(written: Sequence[str], wanted: Sequence[str]) -> list[float]:
    """Return `BY_SENTENCE` of each sentence."""
    _, chrf = _sacrebleu()
    return [chrf.sentence_score(text, [reference]).score for text, reference in zip(written, wanted, strict=True)]


def _sacrebleu() -> tuple[Any, Any]:
    """Create sacrebleu's BLEU and chrF."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        what, hint = "translations are scored by the library sacrebleu", 'pip install "vitrail[text]"'
        raise ConfigError(what, where="evaluate", hint=hint) from None
    return BLEU(), CHRF()


create = Translation.create
