"""Scores of a translator, in Python or in an engine."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import ClassVar

import numpy as np
import torch

from vitrail.data.loading.batches import Batch
from vitrail.data.text.dataset import PairDataset
from vitrail.errors import DataError
from vitrail.models.inference import in_evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.tasks.evaluation import Request, StreamedEvaluation
from vitrail.tasks.options import Options
from vitrail.tasks.task import Answers
from vitrail.tasks.translation.ctranslate2 import BATCH, ExportedTranslator
from vitrail.tasks.translation.data import open_pairs_for
from vitrail.tasks.translation.pairs import Pair
from vitrail.tasks.translation.predictor import AnyTranslator, open_any
from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.task import Translation, TranslationMetrics, pair_dataset


class TranslationEvaluationOptions(Options):
    """No options: a translator is evaluated as it is."""

    refusal: ClassVar[str] = "a translator is evaluated as it is"


SETTINGS = TranslationEvaluationOptions


def evaluation(request: Request) -> StreamedEvaluation:
    """Return the evaluation of a translator on pairs of sentences: BLEU, chrF and loss; raises as `open_pairs_for`."""
    model = open_any(request.model)
    source, split, settings = open_pairs_for(model, request.reference, request.data, request.split, request.note)
    return evaluation_on(model, source.split(split), split, settings)


def evaluation_on(model: AnyTranslator, pairs: Sequence[Pair], split: str, settings: TranslationSettings) -> StreamedEvaluation:
    """Return the evaluation of a translator on some pairs, searched as the settings have it."""
    batch_size = max(1, BATCH // settings.beams)
    if isinstance(model, ExportedTranslator):
        engine = InEngine(model, settings.beams)
        metrics, opened = TranslationMetrics(engine.tokenizer, engine.write), nullcontext(engine.answer)
        return StreamedEvaluation(pairs, split, engine.dataset(pairs), metrics, opened, batch_size, reads_here=True)
    task = Translation(in_evaluation_mode(model.model, pick_device()), model.preparation, settings)
    return StreamedEvaluation.of_task(task, pairs, split, batch_size, reads_here=True)


class InEngine:
    """An exported translator that answers batches as a task does."""

    def __init__(self, exported: ExportedTranslator, beams: int):
        self.exported, self.tokenizer, self.beams = exported, exported.preparation, beams

    def dataset(self, pairs: Sequence[Pair]) -> PairDataset:
        """Return the `pair_dataset`; raises `DataError` for a pair that is longer than the model was made for."""
        most = self.exported.max_tokens
        dataset = pair_dataset(self.tokenizer, pairs, most=most)
        for place in np.flatnonzero(dataset.lengths.max(axis=1, initial=0) > most)[:1]:
            what = f"a sentence has {dataset.lengths[place].max():,} tokens, and the exported model takes {most:,}"
            raise DataError(what, where=dataset.name(int(place)), hint="leave it out, or evaluate the run")
        return dataset

    def answer(self, batch: Batch) -> Answers:
        """Return the sum of the losses of each sentence's tokens, (B,)."""
        sides = (self._tokens(batch[name]) for name in ("source", "labels"))
        return {"loss": torch.tensor([-sum(known) for known in self.exported.log_probabilities(*sides)])}

    def write(self, source: torch.Tensor) -> list[str]:
        """Return the translation of each of (B, S) tokens."""
        texts = self.exported.write(self._tokens(source), self.beams, scores=False)
        return [self.tokenizer.decode(written.tokens) for written in texts]

    def _tokens(self, rows: torch.Tensor) -> list[list[int]]:
        return [[token for token in row if token != self.tokenizer.pad] for row in rows.tolist()]
