"""A trained captioner with its tokens and its preparation of images, and the folder that keeps them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn

from vitrail.data.preparation import Preparation
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ModelFileError
from vitrail.files import write_bytes, write_json, write_text
from vitrail.models.configs.base import ModelConfig
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION, TextConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import architecture_in, architecture_of
from vitrail.models.text_model import TextModel
from vitrail.settings import brief
from vitrail.weights.card import model_card
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.description import read_description
from vitrail.weights.folder import FORMAT, fill, in_layout_of_writers, read_config
from vitrail.weights.hub import push_saved
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import CAPTIONER_LAYOUTS, marian, vision_encoder_decoder
from vitrail.weights.layouts.hugging_face import VIT
from vitrail.weights.locate import CAPTIONER_TYPES, locate
from vitrail.weights.plain_files import CARD, CONFIG, GENERATION, PREPROCESSOR
from vitrail.weights.sums import new_model_folder
from vitrail.weights.tensor_files import require_numbers, write_tensors
from vitrail.weights.translate import recognise


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
        """Write the model folder; it appears whole or not at all, and replaces nothing but an older model folder.

        Args:
            folder: to write.
            layout: ``vitrail``, or one of `vitrail.weights.layouts.CAPTIONER_LAYOUTS`; None for transformers' where it can hold
                the model, else our own.

        Raises:
            ConfigError: the layout cannot hold the model, or is none of captioners.
        """
        foreign = in_layout_of_writers(self.model, layout, CAPTIONER_LAYOUTS)
        with new_model_folder(folder) as draft:
            if foreign is None:
                self.fill(draft, self.card or self.plain_card())
            else:
                self._fill_foreign(draft, *foreign)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Upload the model folder to the Hugging Face hub and give the address of the commit; see `vitrail.weights.hub.push`."""
        return push_saved(self.save_pretrained, repo_id, private=private, revision=revision)

    def plain_card(self) -> str:
        """What can be said of a model that came without a card."""
        return model_card(name=f"{architecture_of(self.config).about}, {self.config.summary}", labels=[])

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder: ``config.json``, tokens, the preparation, ``model.safetensors`` and the card."""
        kind = architecture_of(self.config).name
        values = {"architectures": [kind], "model_type": FORMAT, **self.config.model_dump(mode="json")}
        self._write(folder, values, self.tokenizer.files(), card, self.model.state_dict())

    def _fill_foreign(self, folder: Path, layout: Layout, tensors: dict[str, Tensor]) -> None:
        """Write the files of a folder of transformers'."""
        assert layout.describe is not None
        files = self.tokenizer.files_for_transformers(())
        self._write(folder, layout.describe(self.config), files, self.card or self.plain_card(), tensors)
        longest = min(LONGEST_CAPTION, self.config.max_tokens) + 1  # with the start
        limits = {"no_repeat_ngram_size": CAPTION_NO_REPEAT, "max_length": longest}
        write_json(folder / GENERATION, {**marian.generation(self.config, CAPTION_BEAMS), **limits})

    def _write(
        self, folder: Path, values: dict[str, Any], tokens: dict[str, bytes], card: str, tensors: dict[str, Tensor]
    ) -> None:
        write_json(folder / CONFIG, values)
        write_json(folder / PREPROCESSOR, self.preparation.to_hugging_face())
        for name, content in tokens.items():
            write_bytes(folder / name, content)
        write_text(folder / CARD, card)
        write_tensors(folder / "model.safetensors", tensors)


def open_captioner(reference: str | Path, *, trust_pickle: bool = False) -> TrainedCaptioner:
    """The captioner behind a MODEL: a run folder, a model folder, one of transformers' VisionEncoderDecoder, or a file in one.

    Args:
        reference: the MODEL.
        trust_pickle: also read weights in a pickle, by torch's restricted reader; only for files you trust.

    Raises:
        ModelFileError: missing, damaged, refused, or a model of another kind.
    """
    return load_captioner(locate(reference, trust_pickle), trust_pickle=trust_pickle)


def load_captioner(path: Path, *, trust_pickle: bool = False) -> TrainedCaptioner:
    """Read a model folder, or a file of weights with what stands beside it; raises `ModelFileError`."""
    with Checkpoint.opened(path, trust_pickle=trust_pickle) as checkpoint:
        folder = checkpoint.file.parent
        require_numbers(checkpoint.tensors, checkpoint.file)
        foreign = checkpoint.config.get("model_type") in CAPTIONER_TYPES
        config, tensors = (_foreign if foreign else _own)(checkpoint)
        marks = (config.pad, config.start, config.end)
        tokens, preparation = open_tokens(folder, marks), _preparation(checkpoint, config, foreign=foreign)
        if (config.vocabulary, *marks) != (len(tokens), tokens.pad, tokens.start, tokens.end):
            what = "the vocabulary and its marks are others in config.json than among the tokens"
            raise ModelFileError(what, where=folder, hint="give a complete model folder")
        model: Any = empty_model(config)
        fill(model, tensors, where=checkpoint.file)
        return TrainedCaptioner(model.eval(), tokens, preparation, checkpoint.card)


def _own(checkpoint: Checkpoint) -> tuple[Any, dict[str, Tensor]]:
    """A folder of our own."""
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    kind = values.pop("architectures", None)
    row = architecture_in(kind)
    if values.pop("model_type", None) != FORMAT or row is None or not _sees(row.config):
        what = f"architectures is {brief(kind)}, which is no captioner"
        raise ModelFileError(what, where=where, hint="give the folder of a run that learned to write captions, or its best")
    return read_config(row.config, values, where), checkpoint.tensors


def _foreign(checkpoint: Checkpoint) -> tuple[Any, dict[str, Tensor]]:
    """A folder of transformers'."""
    values, where, tensors = checkpoint.config, checkpoint.file.parent / CONFIG, checkpoint.tensors
    vision_encoder_decoder.settle(tensors, values, where=checkpoint.file)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def known(layout: Layout) -> Mapping[str, Any]:
        return read_description(values, layout, where)

    found = recognise(shapes, known, layouts=list(CAPTIONER_LAYOUTS.values()), where=checkpoint.file)
    return found.config, found.translate(tensors)


def _sees(kind: type[ModelConfig]) -> TypeGuard[type[TextConfig]]:
    """Whether models of a configuration see images and write texts."""
    return issubclass(kind, TextConfig) and kind.reads == "images"


def _preparation(checkpoint: Checkpoint, config: Any, *, foreign: bool) -> Preparation:
    where = checkpoint.file.parent / PREPROCESSOR
    if checkpoint.preprocessor is None:
        raise ModelFileError(f"{PREPROCESSOR} is missing", where=where.parent, hint="give a complete model folder")
    of_type = {"model_type": VIT.model_types[0]} if foreign else {}
    preparation = Preparation.from_hugging_face(checkpoint.preprocessor, where=where, **of_type)
    if (preparation.image_size, preparation.channels) != (config.image_size, config.channels):
        raise ModelFileError("the preparation makes other images than the model takes", where=where, hint="write it again")
    return preparation
