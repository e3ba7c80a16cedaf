"""A trained captioner with its tokens and its preparation of images, and the folder that keeps them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor

from vitrail.data.images.preparation import Preparation
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ModelFileError
from vitrail.files import write_json
from vitrail.models.configs.base import ModelConfig
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION, TextConfig
from vitrail.models.registry import architecture_in
from vitrail.models.text.text_model import TextModel
from vitrail.settings import brief
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.checksums import read_again
from vitrail.weights.formats.safe_files import CONFIG, GENERATION, PREPROCESSOR
from vitrail.weights.formats.tensor_files import require_numbers
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import CAPTIONER_LAYOUTS, marian, vision_encoder_decoder
from vitrail.weights.layouts.hugging_face.vit import VIT
from vitrail.weights.locate import CAPTIONER_TYPES, locate
from vitrail.weights.model_folder.card import model_card
from vitrail.weights.model_folder.description import read_description
from vitrail.weights.model_folder.folder import FORMAT, read_config
from vitrail.weights.model_folder.trained_texts import TrainedTexts, model_of_tokens, write_texts
from vitrail.weights.state_dict import recognise


class TrainedCaptioner(TrainedTexts):
    """A model with what it needs to write about a picture.

    Args:
        model: images and captions to logits.
        tokenizer: captions to tokens and back.
        preparation: what makes the model's input of a picture.
        card: the model card, as Markdown.
    """

    layouts = CAPTIONER_LAYOUTS

    def __init__(self, model: TextModel, tokenizer: Tokens, preparation: Preparation, card: str = ""):
        super().__init__(model, card)
        self.tokenizer, self.preparation = tokenizer, preparation

    def plain_card(self) -> str:
        return model_card(name=self._summary, labels=[])

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder: ``config.json``, tokens, the preparation, ``model.safetensors`` and the card."""
        write_texts(folder, self._own_values(), self.tokenizer.files(), card, self.model.state_dict())
        write_json(folder / PREPROCESSOR, self.preparation.to_hugging_face())

    def _fill_foreign(self, folder: Path, layout: Layout, tensors: dict[str, Tensor]) -> None:
        assert layout.describe is not None
        tokens = self.tokenizer.files_for_transformers(())
        write_texts(folder, layout.describe(self.config), tokens, self.card or self.plain_card(), tensors)
        write_json(folder / PREPROCESSOR, self.preparation.to_hugging_face())
        longest = min(LONGEST_CAPTION, self.config.max_tokens) + 1  # with the start
        limits = {"no_repeat_ngram_size": CAPTION_NO_REPEAT, "max_length": longest}
        write_json(folder / GENERATION, {**marian.generation(self.config, CAPTION_BEAMS), **limits})


def open_captioner(reference: str | Path, *, trust_pickle: bool = False) -> TrainedCaptioner:
    """The captioner behind a MODEL: a run folder, a model folder, one of transformers' VisionEncoderDecoder, or a file in one.

    Args:
        reference: the MODEL.
        trust_pickle: also read weights in a pickle, by torch's restricted reader; only for files you trust.

    Raises:
        ModelFileError: missing, damaged, refused, or a model of another kind.
    """
    return read_again(reference, lambda: load_captioner(locate(reference, trust_pickle), trust_pickle=trust_pickle))


def load_captioner(path: Path, *, trust_pickle: bool = False) -> TrainedCaptioner:
    """Read a model folder, or a file of weights with what stands beside it; raises `ModelFileError`."""
    with Checkpoint.opened(path, trust_pickle=trust_pickle) as checkpoint:
        foreign = checkpoint.config.get("model_type") in CAPTIONER_TYPES
        config, tensors = (_foreign if foreign else _own)(checkpoint)
        tokens = open_tokens(checkpoint.file.parent, (config.pad, config.start, config.end))
        preparation = _preparation(checkpoint, config, foreign=foreign)
        return TrainedCaptioner(model_of_tokens(config, tokens, tensors, checkpoint), tokens, preparation, checkpoint.card)


def _own(checkpoint: Checkpoint) -> tuple[Any, dict[str, Tensor]]:
    """A folder of our own."""
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    kind = values.pop("architectures", None)
    row = architecture_in(kind)
    if values.pop("model_type", None) != FORMAT or row is None or not _sees(row.config):
        what = f"architectures is {brief(kind)}, which is no captioner"
        raise ModelFileError(what, where=where, hint="give the folder of a run that learned to write captions, or its best")
    require_numbers(checkpoint.tensors, checkpoint.file)
    return read_config(row.config, values, where), checkpoint.tensors


def _foreign(checkpoint: Checkpoint) -> tuple[Any, dict[str, Tensor]]:
    """A folder of transformers'."""
    values, where, layouts = checkpoint.config, checkpoint.file.parent / CONFIG, list(CAPTIONER_LAYOUTS.values())
    ignored = {name for name in checkpoint.tensors if all(layout.passes_over(name) for layout in layouts)}
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in ignored}  # masks are no numbers
    require_numbers(tensors, checkpoint.file)
    vision_encoder_decoder.settle(tensors, values, where=checkpoint.file)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def known(layout: Layout) -> Mapping[str, Any]:
        return read_description(values, layout, where)

    found = recognise(shapes, known, layouts=layouts, where=checkpoint.file)
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
