"""Evaluation of a translation model, in PyTorch or exported."""

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
    """An empty set of options: the evaluation of a translation model has none."""

    refusal: ClassVar[str] = "the evaluation of a translation model has no such option"


SETTINGS = TranslationEvaluationOptions


def evaluation(request: Request) -> StreamedEvaluation:
    """Return the evaluation of a translation model: BLEU, chrF and loss. Raises the errors of `open_pairs_for`."""
    model = open_any(request.model)
    source, split, settings = open_pairs_for(model, request.reference, request.data, request.split, request.note)
    return evaluation_on(model, source.split(split), split, settings)


def evaluation_on(model: AnyTranslator, pairs: Sequence[Pair], split: str, settings: TranslationSettings) -> StreamedEvaluation:
    """Return the evaluation of a translation model on these pairs, with the beam search of ``settings``."""
    batch_size = max(1, BATCH // settings.beams)
    if isinstance(model, ExportedTranslator):
        engine = InEngine(model, settings.beams)
        metrics, opened = TranslationMetrics(engine.tokenizer, engine.write), nullcontext(engine.answer)
        return StreamedEvaluation(pairs, split, engine.dataset(pairs), metrics, opened, batch_size, reads_here=True)
    task = Translation(in_evaluation_mode(model.model, pick_device()), model.preparation, settings)
    return StreamedEvaluation.of_task(task, pairs, split, batch_size, reads_here=True)


class InEngine:
    """An adapter that gives an exported translation model the methods of a task for batches."""

    def __init__(self, exported: ExportedTranslator, beams: int):
        self.exported, self.tokenizer, self.beams = exported, exported.preparation, beams

    def dataset(self, pairs: Sequence[Pair]) -> PairDataset:
        """Return the `pair_dataset`; raises `DataError` for a sentence with more tokens than the exported model takes."""
        most = self.exported.max_tokens
        dataset = pair_dataset(self.tokenizer, pairs, most=most)
        for place in np.flatnonzero(dataset.lengths.max(axis=1, initial=0) > most)[:1]:
            what = f"a sentence has {dataset.lengths[place].max():,} tokens, but the exported model takes at most {most:,}"
            raise DataError(what, where=dataset.name(int(place)), hint="leave it out, or evaluate the run")
        return dataset

    def answer(self, batch: Batch) -> Answers:
        """Return the loss of each sentence, summed over its tokens, (B,)."""
        sides = (self._tokens(batch[name]) for name in ("source", "labels"))
        return {"loss": torch.tensor([-sum(known) for known in self.exported.log_probabilities(*sides)])}

    def write(self, source: torch.Tensor) -> list[str]:
        """Return the translation of each source; ``source`` is tokens (B, S)."""
        texts = self.exported.write(self._tokens(source), self.beams, scores=False)
        return [self.tokenizer.decode(written.tokens) for written in texts]

    def _tokens(self, rows: torch.Tensor) -> list[list[int]]:
        return [[token for token in row if token != self.tokenizer.pad] for row in rows.tolist()]
