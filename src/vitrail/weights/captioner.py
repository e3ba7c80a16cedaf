"""A trained captioner with its tokens and its preparation of images, and the folder that keeps them."""

from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn

from vitrail.data.preparation import Preparation
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of, whole_folder, write_bytes, write_json, write_text
from vitrail.models.configs.base import ModelConfig
from vitrail.models.configs.texts import TextConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import architecture_in, architecture_of
from vitrail.models.text_model import TextModel
from vitrail.settings import brief
from vitrail.weights.card import model_card
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.folder import FORMAT, fill, read_config
from vitrail.weights.hub import push_saved
from vitrail.weights.locate import locate
from vitrail.weights.plain_files import CARD, CONFIG, PREPROCESSOR
from vitrail.weights.sums import write_sums
from vitrail.weights.tensor_files import require_numbers, write_tensors


class TrainedCaptioner(nn.Module):
    """A model with what it needs to write about a picture.

    Args:
        model: images and captions to logits.
        tokenizer: captions to tokens and back.
        preparation: what makes the model's input of a picture.
        card: the model card, as Markdown.
    """

    labels: tuple[()] = ()
    thresholds: tuple[()] = ()

    def __init__(self, model: TextModel, tokenizer: Tokens, preparation: Preparation, card: str = ""):
        super().__init__()
        self.model, self.tokenizer, self.preparation, self.card = model, tokenizer, preparation, card
        self.training = model.training

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        """Prepared images (B, C, H, W) and tokens (B, T) to logits (B, T, vocabulary); see `TextModel.forward`."""
        logits: Tensor = self.model(images, target)
        return logits

    def save_pretrained(self, folder: str | Path, *, layout: str | None = FORMAT) -> None:
        """Write the model folder; it appears whole or not at all.

        Raises:
            ConfigError: a layout other than our own.
        """
        if layout not in (None, FORMAT):
            hint = f"leave it out, or give {FORMAT}"
            raise ConfigError(f"captioners are not written as {layout}", where="--layout", hint=hint)
        with whole_folder(path_of(folder)) as draft:
            self.fill(draft, self.card or self.plain_card())
            write_sums(draft)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Upload the model folder to the Hugging Face hub and give the address of the commit; see `vitrail.weights.hub.push`."""
        return push_saved(self.save_pretrained, repo_id, private=private, revision=revision)

    def plain_card(self) -> str:
        """What can be said of a model that came without a card."""
        return model_card(name=f"{architecture_of(self.config).about}, {self.config.summary}", labels=[])

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder: ``config.json``, tokens, the preparation, ``model.safetensors`` and the card."""
        kind = architecture_of(self.config).name
        write_json(folder / CONFIG, {"architectures": [kind], "model_type": FORMAT, **self.config.model_dump(mode="json")})
        write_json(folder / PREPROCESSOR, self.preparation.to_hugging_face())
        for name, content in self.tokenizer.files().items():
            write_bytes(folder / name, content)
        write_text(folder / CARD, card)
        write_tensors(folder / "model.safetensors", self.model.state_dict())


def open_captioner(reference: str | Path) -> TrainedCaptioner:
    """The captioner behind a MODEL: a run folder or a model folder.

    Raises:
        ModelFileError: missing, damaged, refused, or a model of another kind.
    """
    path = locate(reference)
    return load_captioner(path if path.is_dir() else path.parent)


def load_captioner(folder: Path) -> TrainedCaptioner:
    """Read a model folder; raises `ModelFileError`."""
    with Checkpoint.opened(folder) as checkpoint:
        require_numbers(checkpoint.tensors, checkpoint.file)
        config = _config(checkpoint)
        tokens, preparation = open_tokens(folder), _preparation(checkpoint, config)
        expected = (len(tokens), tokens.pad, tokens.start, tokens.end)
        if (config.vocabulary, config.pad, config.start, config.end) != expected:
            what = "the vocabulary and its marks are others in config.json than among the tokens"
            raise ModelFileError(what, where=folder, hint="give a complete model folder")
        model: Any = empty_model(config)
        fill(model, checkpoint.tensors, where=checkpoint.file)
        return TrainedCaptioner(model.eval(), tokens, preparation, checkpoint.card)


def _config(checkpoint: Checkpoint) -> Any:
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    kind = values.pop("architectures", None)
    row = architecture_in(kind)
    if values.pop("model_type", None) != FORMAT or row is None or not _sees(row.config):
        what = f"architectures is {brief(kind)}, which is no captioner"
        raise ModelFileError(what, where=where, hint="give the folder of a run that learned to write captions, or its best")
    return read_config(row.config, values, where)


def _sees(kind: type[ModelConfig]) -> TypeGuard[type[TextConfig]]:
    """Whether models of a configuration see images and write texts."""
    return issubclass(kind, TextConfig) and kind.reads == "images"


def _preparation(checkpoint: Checkpoint, config: Any) -> Preparation:
    where = checkpoint.file.parent / PREPROCESSOR
    if checkpoint.preprocessor is None:
        raise ModelFileError(f"{PREPROCESSOR} is missing", where=where.parent, hint="give a complete model folder")
    preparation = Preparation.from_hugging_face(checkpoint.preprocessor, where=where)
    if (preparation.image_size, preparation.channels) != (config.image_size, config.channels):
        raise ModelFileError("the preparation makes other images than the model takes", where=where, hint="write it again")
    return preparation
