"""A trained model of two languages with its tokens, and the folder that keeps them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from vitrail.data.text.dataset import filled
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ModelFileError
from vitrail.files import write_json
from vitrail.models.configs.base import ModelConfig
from vitrail.models.configs.texts import TextConfig
from vitrail.models.registry import architecture_in
from vitrail.models.text.text_model import Aligned, TextModel
from vitrail.settings import brief
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.checksums import read_again
from vitrail.weights.formats.safe_files import CONFIG, GENERATION, TOKENIZER_CONFIG, read_json, section
from vitrail.weights.formats.tensor_files import require_numbers
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import TEXT_LAYOUTS, marian
from vitrail.weights.locate import TEXT_MODEL_TYPES, locate
from vitrail.weights.model_folder.card import model_card
from vitrail.weights.model_folder.description import describe, read_description
from vitrail.weights.model_folder.folder import FORMAT, read_config
from vitrail.weights.model_folder.trained_texts import TrainedTexts, model_of_tokens, write_texts
from vitrail.weights.state_dict import recognise

LANGUAGES = "languages"
"""In ``config.json``: which language is read, and which is written."""


class TrainedTranslator(TrainedTexts):
    """A model with what it needs to translate.

    Args:
        model: sources and targets to logits.
        tokenizer: texts to tokens and back.
        languages: the one that is read, the one that is written.
        card: the model card, as Markdown.
    """

    layouts = TEXT_LAYOUTS

    def __init__(self, model: TextModel, tokenizer: Tokens, languages: tuple[str, str], card: str = ""):
        super().__init__(model, card)
        self.preparation, self.languages = tokenizer, languages

    @torch.inference_mode()
    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """How much each token of a translation, its end with them, looked at each of the source, and these as people read them.

        The source has its end, the target neither start nor end. None where the model has no attention.
        """
        device, c = next(self.model.parameters()).device, self.config
        before, after = [c.start, *target][: c.max_tokens], [*target, c.end][: c.max_tokens]  # it may have been cut at the limit
        weights = self.model.alignment(*(filled([row], c.pad, c.max_tokens).to(device) for row in (source, before)))
        if weights is None:
            return None
        pieces = self.preparation.pieces
        return pieces(source), pieces(after), weights[0, : len(after), : len(source)].float().cpu()

    def alignment_of(self, text: str, translation: str) -> Aligned | None:
        """`alignment` of a text and a translation as people have them."""
        (source,), (target,) = self.preparation.encode([text]), self.preparation.encode_targets([translation])
        return self.alignment(source, target[:-1])

    def plain_card(self) -> str:
        return model_card(name=self._summary, labels=[], languages=self.languages)

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder: ``config.json``, tokens, ``model.safetensors`` and the card."""
        values = {**self._own_values(), LANGUAGES: list(self.languages)}
        write_texts(folder, values, self.preparation.files(), card, self.model.state_dict())

    def _fill_foreign(self, folder: Path, layout: Layout, tensors: dict[str, Tensor]) -> None:
        values = {**describe(self.config, layout), FORMAT: {LANGUAGES: list(self.languages)}}
        tokens = self.preparation.files_for_transformers(self.languages)
        write_texts(folder, values, tokens, self.card or self.plain_card(), tensors)
        write_json(folder / GENERATION, marian.generation(self.config))


def open_translator(reference: str | Path, *, trust_pickle: bool = False) -> TrainedTranslator:
    """The translator behind a MODEL: a run folder, a model folder, one of transformers' MarianMT, or a file in one.

    Args:
        reference: the MODEL.
        trust_pickle: also read weights in a pickle, by torch's restricted reader; only for files you trust.

    Raises:
        ModelFileError: missing, damaged, refused, or a model of images.
    """
    return read_again(reference, lambda: load_translator(locate(reference, trust_pickle), trust_pickle=trust_pickle))


def load_translator(path: Path, *, trust_pickle: bool = False) -> TrainedTranslator:
    """Read a model folder, or a file of weights with what stands beside it; raises `ModelFileError`."""
    with Checkpoint.opened(path, trust_pickle=trust_pickle) as checkpoint:
        require_numbers(checkpoint.tensors, checkpoint.file)
        foreign = checkpoint.config.get("model_type") in TEXT_MODEL_TYPES
        config, languages, tensors = (_foreign if foreign else _own)(checkpoint)
        tokens = open_tokens(checkpoint.file.parent)
        return TrainedTranslator(model_of_tokens(config, tokens, tensors, checkpoint), tokens, languages, checkpoint.card)


Understood = tuple[TextConfig, tuple[str, str], dict[str, Tensor]]
"""The configuration of a model, its languages, and its parameters."""


def _own(checkpoint: Checkpoint) -> Understood:
    """A folder of our own, which says everything."""
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    kind, languages = values.pop("architectures", None), values.pop(LANGUAGES, None)
    row = architecture_in(kind)
    if not where.is_file():
        hint = "give the folder of the translator, with its configuration and its tokens"
        raise ModelFileError(f"{CONFIG} is missing", where=where.parent, hint=hint)
    if values.pop("model_type", None) != FORMAT or row is None or not _translates(row.config):
        what = f"architectures is {brief(kind)}, which is no model of texts"
        raise ModelFileError(what, where=where, hint="give the folder of a run that learned to translate, or its best")
    if not _are_languages(languages):
        what = f"languages is {brief(languages)}, and not two names"
        raise ModelFileError(what, where=where, hint="give a complete model folder")
    return read_config(row.config, values, where), (languages[0], languages[1]), checkpoint.tensors


def _foreign(checkpoint: Checkpoint) -> Understood:
    """A folder of transformers'."""
    values, where, tensors = checkpoint.config, checkpoint.file.parent / CONFIG, checkpoint.tensors
    marian.settle(tensors, values, where=checkpoint.file)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def known(layout: Layout) -> Mapping[str, Any]:
        return read_description(values, layout, where)

    found = recognise(shapes, known, layouts=[marian.MARIAN], where=checkpoint.file)
    return found.config, _languages(checkpoint), found.translate(tensors)


def _languages(checkpoint: Checkpoint) -> tuple[str, str]:
    """What we have written of languages, else what stands beside the tokens; without either their places."""
    told, beside = section(checkpoint.config, FORMAT).get(LANGUAGES), checkpoint.file.parent / TOKENIZER_CONFIG
    if not _are_languages(told):
        settings = read_json(beside) if beside.is_file() else {}
        told = [settings.get("source_lang"), settings.get("target_lang")]
    return (told[0], told[1]) if _are_languages(told) else ("source", "target")


def _translates(kind: type[ModelConfig]) -> TypeGuard[type[TextConfig]]:
    """Whether models of a configuration read texts and write texts."""
    return issubclass(kind, TextConfig) and kind.reads == "texts"


def _are_languages(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)


def longest(length: int, most: int) -> int:
    """Tokens that the translation of a text of so many may have: twice as many and a few, and at ``most`` so many."""
    return min(2 * length + 10, most)
