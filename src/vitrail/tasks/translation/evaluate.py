"""How good the translations of a translator are, in Python or in an engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.data.loading.batches import Batch
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.text.dataset import PairDataset
from vitrail.errors import DataError
from vitrail.models.inference import in_evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.evaluation import answering
from vitrail.tasks.evaluation import evaluate as evaluate_task
from vitrail.tasks.task import Answers
from vitrail.tasks.translation.ctranslate2 import BATCH, ExportedTranslator
from vitrail.tasks.translation.pairs import Pair, PairData
from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.task import Translation, TranslationMetrics, pair_dataset
from vitrail.tasks.translation.translate import AnyTranslator
from vitrail.tasks.translation.weights import open_translator
from vitrail.weights.locate import is_exported_translator

OpenPairs = Callable[[Any], tuple[PairData, str, TranslationSettings]]
"""Of a translator, the sentences that it is evaluated on, which split of them is meant, and how it is searched."""


def evaluate_translator(
    model: str | Path | AnyTranslator,
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
    exported = ExportedTranslator(model) if is_exported_translator(model) else model
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
        task = Translation(in_evaluation_mode(trained.model, device), trained.preparation, settings).to(device)
        metrics, dataset, opened = task.metrics(keep=True), task.dataset(pairs), answering(task, device)
    metrics.take_items(pairs)
    loader = EpochLoader(dataset, max(1, BATCH // settings.beams), shuffle=False, part=(group.rank, group.count))
    with opened as answer:
        return evaluate_task(answer, loader, metrics, on_batch=on_batch, group=group), split


class InEngine:
    """An exported translator as it is evaluated."""

    def __init__(self, exported: ExportedTranslator, beams: int):
        self.exported, self.tokenizer, self.beams = exported, exported.preparation, beams

    def dataset(self, pairs: Sequence[Pair]) -> PairDataset:
        """See `pair_dataset`; raises `DataError` for a pair that is longer than the model was made for."""
        most = self.exported.max_tokens
        found = pair_dataset(self.tokenizer, pairs, most=most)
        for place in np.flatnonzero(found.lengths.max(axis=1, initial=0) > most)[:1]:
            what = f"a sentence has {found.lengths[place].max():,} tokens, and the exported model takes {most:,}"
            raise DataError(what, where=found.name(int(place)), hint="leave it out, or evaluate the run")
        return found

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
