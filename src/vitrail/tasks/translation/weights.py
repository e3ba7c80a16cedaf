"""A trained translation model with its tokens, and its model folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import torch

from vitrail.data.text.dataset import filled
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ModelFileError
from vitrail.models.text.text_model import Aligned, TextModel
from vitrail.settings import brief
from vitrail.task_registry import TASKS
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.safe_files import CONFIG, GENERATION, TOKENIZER_CONFIG, read_json, section
from vitrail.weights.formats.tensor_files import require_numbers
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import TEXT_LAYOUTS, marian
from vitrail.weights.model_folder.description import describe
from vitrail.weights.model_folder.trained import FORMAT
from vitrail.weights.model_folder.trained_texts import TrainedTexts, model_of_tokens, own_config, recognised
from vitrail.weights.reference import read_behind

LANGUAGES = "languages"
"""Entry of ``config.json`` for the source and the target language."""
ROW = TASKS["translate"]


class TrainedTranslator(TrainedTexts):
    """A translation model with its tokenizer and its languages, source and target."""

    layouts = TEXT_LAYOUTS
    no_labels = "a translator sees no images", "call vitrail.translate(run.trained, texts)"

    def __init__(self, model: TextModel, tokenizer: Tokens, languages: tuple[str, str], card: str = ""):
        super().__init__(model, card)
        self.preparation, self.languages = tokenizer, languages

    @property
    def facts(self) -> dict[str, Any]:
        return {"labels": [], "languages": self.languages}

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [("languages", " → ".join(self.languages)), ("tokens", f"{len(self.preparation):,}")]

    @property
    def uses(self) -> Sequence[str]:
        return "translate {}", "summary {}"

    @torch.inference_mode()
    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """Return the tokens of source and translation as text, and the attention (T, S) of the translation to the source.

        ``source`` has its end token; ``target`` has neither start nor end, but its end is in the result. None for a model
        without attention.
        """
        device, c = next(self.model.parameters()).device, self.config
        before, after = [c.start, *target][: c.max_tokens], [*target, c.end][: c.max_tokens]  # it may have been cut at the limit
        weights = self.model.alignment(*(filled([row], c.pad, c.max_tokens).to(device) for row in (source, before)))
        if weights is None:
            return None
        pieces = self.preparation.pieces
        return pieces(source), pieces(after), weights[0, : len(after), : len(source)].float().cpu()

    def alignment_of(self, text: str, translation: str) -> Aligned | None:
        """Return the `alignment` of a text and a translation, as strings."""
        (source,), (target,) = self.preparation.encode([text]), self.preparation.encode_targets([translation])
        return self.alignment(source, target[:-1])

    def description(self, layout: Layout | None) -> dict[str, Any]:
        languages = {LANGUAGES: list(self.languages)}
        return super().description(None) | languages if layout is None else {**describe(self.config, layout), FORMAT: languages}

    def files(self, layout: Layout | None) -> Mapping[str, Mapping[str, Any] | bytes]:
        if layout is None:
            return self.preparation.files()
        return {**self.preparation.files_for_transformers(self.languages), GENERATION: marian.generation(self.config)}


def open_translator(reference: str | Path, *, trust_pickle: bool = False) -> TrainedTranslator:
    """Load the translation model of a MODEL: a run folder, a model folder, transformers' MarianMT, or a file in a folder.

    With ``trust_pickle`` pickles are read, too, by torch's restricted reader: only for files you trust.

    Raises:
        ModelFileError: the model is missing, damaged, refused, or no translation model.
    """
    return read_behind(reference, read, trust_pickle=trust_pickle)


def load_translator(path: Path) -> TrainedTranslator:
    """Read a model folder, or a weights file with the files beside it; raises `ModelFileError`."""
    with Checkpoint.opened(path) as checkpoint:
        return read(checkpoint)


def read(checkpoint: Checkpoint) -> TrainedTranslator:
    """Return the translator that a checkpoint holds; raises `ModelFileError`."""
    require_numbers(checkpoint.tensors, checkpoint.file)
    if checkpoint.config.get("model_type") in ROW.model_types:
        marian.settle(checkpoint.tensors, checkpoint.config, where=checkpoint.file)
        config, tensors = recognised(checkpoint, checkpoint.tensors, TEXT_LAYOUTS)
        languages = _foreign_languages(checkpoint)
    else:
        config, languages = _own(checkpoint)
        tensors = checkpoint.tensors
    tokens = open_tokens(checkpoint.file.parent)
    model = model_of_tokens(config, tokens, tensors, checkpoint)
    return TrainedTranslator(model, tokens, (languages[0], languages[1]), checkpoint.card)


def no_labels(where: object) -> ModelFileError:
    """Return the error for a translation model where an image model is needed."""
    hint = "give it to vitrail translate, evaluate, serve, convert or summary"
    return ModelFileError("a translator is no model of images", where=where, hint=hint)


def _own(checkpoint: Checkpoint) -> tuple[Any, list[str]]:
    """Return the configuration and the languages of a Vitrail folder."""
    where = checkpoint.file.parent / CONFIG
    if not where.is_file():
        hint = "give the folder of the translator, with its configuration and its tokens"
        raise ModelFileError(f"{CONFIG} is missing", where=where.parent, hint=hint)
    hint = "give the folder of a run that learned to translate, or its best"
    config, (languages,) = own_config(checkpoint, ROW, "translation model", hint, (LANGUAGES,))
    if not _are_languages(languages):
        what = f"languages is {brief(languages)}, not two names"
        raise ModelFileError(what, where=where, hint="give a complete model folder")
    return config, languages


def _foreign_languages(checkpoint: Checkpoint) -> list[str]:
    """Return the languages of a transformers folder: Vitrail's entry, else the tokenizer's, else "source" and "target"."""
    languages, beside = section(checkpoint.config, FORMAT).get(LANGUAGES), checkpoint.file.parent / TOKENIZER_CONFIG
    if not _are_languages(languages):
        settings = read_json(beside) if beside.is_file() else {}
        languages = [settings.get("source_lang"), settings.get("target_lang")]
    return languages if _are_languages(languages) else ["source", "target"]


def _are_languages(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)


def longest(length: int, most: int) -> int:
    """Return the most tokens of a translation: about twice the ``length`` of the source, and at most ``most``."""
    return min(2 * length + 10, most)
