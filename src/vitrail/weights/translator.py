"""A trained model of two languages with its tokens, and the folder that keeps them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data.text.dataset import filled
from vitrail.data.text.tokenizer import END, FILE, PAD, START, Tokenizer
from vitrail.errors import ModelFileError
from vitrail.files import path_of, whole_folder, write_json, write_text
from vitrail.models.configs.texts import TextConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import architecture_in, architecture_of
from vitrail.models.text_model import TextModel
from vitrail.settings import brief
from vitrail.weights.folder import FORMAT, fill, read_config
from vitrail.weights.locate import locate
from vitrail.weights.plain_files import CARD, CONFIG, read_json
from vitrail.weights.tensor_files import read_tensors, require_numbers, write_tensors

LANGUAGES = "languages"
"""In ``config.json``: which language is read, and which is written."""


Aligned = tuple[list[str], list[str], Any]
"""Tokens that are read, tokens that are written, and how much each of these looked at each of those, (written, read)."""


class TrainedTranslator(nn.Module):
    """A model with what it needs to translate.

    Args:
        model: sources and targets to logits.
        tokenizer: texts to tokens and back.
        languages: the one that is read, the one that is written.
        card: the model card, as Markdown.
    """

    labels: tuple[()] = ()
    thresholds: tuple[()] = ()

    def __init__(self, model: TextModel, tokenizer: Tokenizer, languages: tuple[str, str], card: str = ""):
        super().__init__()
        self.model, self.preparation, self.languages, self.card = model, tokenizer, languages, card
        self.training = model.training

    @property
    def config(self) -> TextConfig:
        """The model's configuration."""
        return self.model.config

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Tokens (B, S) and (B, T) to logits (B, T, vocabulary); see `TextModel.forward`."""
        logits: Tensor = self.model(source, target)
        return logits

    @torch.inference_mode()
    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """How much each token of a translation, its end with them, looked at each of the source, and these as people read them.

        The source has its end, the target neither start nor end. None where the model has no attention.
        """
        device = next(self.model.parameters()).device
        weights = self.model.alignment(filled([source]).to(device), filled([[START, *target]]).to(device))
        if weights is None:
            return None
        pieces = self.preparation.pieces
        without_filling = weights[0, : len(target) + 1, : len(source)].float().cpu()
        return pieces(source), pieces([*target, END]), without_filling

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder; it appears whole or not at all."""
        with whole_folder(path_of(folder)) as draft:
            self.fill(draft, self.card)

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder: ``config.json``, ``tokenizer.json``, ``model.safetensors`` and the card."""
        description = {
            "architectures": [architecture_of(self.config).name],
            "model_type": FORMAT,
            LANGUAGES: list(self.languages),
            **self.config.model_dump(mode="json"),
        }
        write_json(folder / CONFIG, description)
        write_text(folder / FILE, self.preparation.to_json())
        write_text(folder / CARD, card)
        write_tensors(folder / "model.safetensors", self.model.state_dict())


def open_translator(reference: str | Path) -> TrainedTranslator:
    """The translator behind a MODEL: a run folder or a model folder.

    Raises:
        ModelFileError: missing, damaged, or a model of images.
    """
    path = locate(reference)
    return load_translator(path if path.is_dir() else path.parent)


def load_translator(folder: Path) -> TrainedTranslator:
    """Read a model folder; raises `ModelFileError`."""
    where = folder / CONFIG
    values: dict[str, Any] = dict(read_json(where)) if where.is_file() else {}
    kind, languages = values.pop("architectures", None), values.pop(LANGUAGES, None)
    row = architecture_in(kind)
    if values.pop("model_type", None) != FORMAT or row is None or not issubclass(row.config, TextConfig):
        what = f"architectures is {brief(kind)}, which is no model of texts"
        raise ModelFileError(what, where=where, hint="give the folder of a run that learned to translate, or its best")
    if not (isinstance(languages, list) and len(languages) == 2 and all(isinstance(name, str) for name in languages)):
        what = f"languages is {brief(languages)}, and not two names"
        raise ModelFileError(what, where=where, hint="give a complete model folder")
    config = read_config(row.config, values, where)
    if (config.pad, config.start, config.end) != (PAD, START, END):
        what = f"pad, start and end are {config.pad}, {config.start} and {config.end}, and not {PAD}, {START} and {END}"
        raise ModelFileError(what, where=where, hint="give a folder that Vitrail has made")
    tokenizer = Tokenizer.from_file(folder / FILE)
    if len(tokenizer) != config.vocabulary:
        what = f"{FILE} has {len(tokenizer):,} tokens, the model {config.vocabulary:,}"
        raise ModelFileError(what, where=folder, hint="give a complete model folder")
    file = folder / "model.safetensors"
    tensors = read_tensors(file)
    require_numbers(tensors, file)
    model: Any = empty_model(config)
    fill(model, tensors, where=file)
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return TrainedTranslator(model.eval(), tokenizer, (languages[0], languages[1]), text)


def longest(source: Tensor) -> Tensor:
    """Tokens that the translations of (B, S) tokens may have, (B,): twice as many and a few."""
    return 2 * (source != PAD).sum(dim=1) + 10
