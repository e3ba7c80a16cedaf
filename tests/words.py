"""A language of a few words, word by word, and a tiny model that learns it."""

import itertools
from pathlib import Path
from typing import Any

from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.task import Translation
from vitrail.tasks.translation.weights import TrainedTranslator

WORDS = {"one": "eins", "red": "rot", "cat": "Katze", "and": "und", "dog": "Hund"}
TINY_TRANSLATOR: dict[str, Any] = {
    "task": "translate", "source": "en", "target": "de", "task.vocabulary": 280, "task.beams": 2,
    "model.name": "Transformer-tiny", "model.dim": 32, "model.depth": 1, "model.decoder_depth": 1, "model.heads": 2,
    "model.mlp_dim": 32, "model.dropout": 0, "training.batch_size": 100, "training.epochs": 30, "optimizer.name": "adamw",
    "optimizer.lr": 0.01, "training.label_smoothing": 0,
}  # fmt: skip


def write_pairs(file: Path, *, header: str = "en\tde", most: int = 3) -> Path:
    """A table of all sentences of up to so many different words."""
    sentences = [words for length in range(1, most + 1) for words in itertools.permutations(WORDS, length)]
    rows = [f"{' '.join(words)}\t{' '.join(WORDS[word] for word in words)}" for words in sentences]
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def task_of(trained: TrainedTranslator) -> Translation:
    """Return the task of such a model."""
    return Translation(trained.model, trained.preparation, TranslationSettings(source="en", target="de", beams=2))
