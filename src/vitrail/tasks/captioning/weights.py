"""A trained captioning model with its tokens and preparation of images, and its model folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.data.images.preparation import Preparation
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ModelFileError
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.models.text.text_model import TextModel
from vitrail.task_registry import TASKS
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.safe_files import GENERATION, PREPROCESSOR
from vitrail.weights.formats.tensor_files import require_numbers
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import CAPTIONER_LAYOUTS, marian, vision_encoder_decoder
from vitrail.weights.layouts.hugging_face.vit import VIT
from vitrail.weights.model_folder.trained_texts import TrainedTexts, model_of_tokens, own_config, recognised
from vitrail.weights.reference import read_behind

ROW = TASKS["caption"]


class TrainedCaptioner(TrainedTexts):
    """A captioning model with its tokenizer and its preparation of images."""

    layouts = CAPTIONER_LAYOUTS
    no_labels = "a captioner writes sentences and gives no labels", "call vitrail.caption(run.trained, images)"

    def __init__(self, model: TextModel, tokenizer: Tokens, preparation: Preparation, card: str = ""):
        super().__init__(model, card)
        self.tokenizer, self.preparation = tokenizer, preparation

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [("images", str(self.preparation)), ("tokens", f"{len(self.tokenizer):,}")]

    @property
    def uses(self) -> Sequence[str]:
        return "caption {} IMAGES --attention FOLDER", "serve {}", "summary {}"

    def description(self, layout: Layout | None) -> dict[str, Any]:
        return layout.describe(self.config) if layout is not None and layout.describe else super().description(None)

    def files(self, layout: Layout | None) -> Mapping[str, Mapping[str, Any] | bytes]:
        prepared = {PREPROCESSOR: self.preparation.to_hugging_face()}
        if layout is None:
            return {**self.tokenizer.files(), **prepared}
        longest = min(LONGEST_CAPTION, self.config.max_tokens) + 1  # with the start
        limits = {"no_repeat_ngram_size": CAPTION_NO_REPEAT, "max_length": longest}
        generation = {GENERATION: {**marian.generation(self.config, CAPTION_BEAMS), **limits}}
        return {**self.tokenizer.files_for_transformers(()), **prepared, **generation}


def open_captioner(reference: str | Path, *, trust_pickle: bool = False) -> TrainedCaptioner:
    """Load the captioner of a MODEL: a run folder, a model folder, transformers' VisionEncoderDecoder, or a file in a folder.

    With ``trust_pickle`` pickles are read, too, by torch's restricted reader: only for files you trust.

    Raises:
        ModelFileError: the model is missing, damaged, refused, or no captioner.
    """
    return read_behind(reference, read, trust_pickle=trust_pickle)


def load_captioner(path: Path) -> TrainedCaptioner:
    """Read a model folder, or a weights file with the files beside it; raises `ModelFileError`."""
    with Checkpoint.opened(path) as checkpoint:
        return read(checkpoint)


def read(checkpoint: Checkpoint) -> TrainedCaptioner:
    """Return the captioner that a checkpoint holds; raises `ModelFileError`."""
    foreign, tensors = checkpoint.config.get("model_type") in ROW.model_types, checkpoint.tensors
    if foreign:
        layouts = CAPTIONER_LAYOUTS.values()
        ignored = {name for name in tensors if all(layout.passes_over(name) for layout in layouts)}  # masks are not floats
        tensors = {name: tensor for name, tensor in tensors.items() if name not in ignored}
    else:
        hint = "give the folder of a run that learned to write captions, or its best"
        config, _ = own_config(checkpoint, ROW, "captioner", hint)
    require_numbers(tensors, checkpoint.file)
    if foreign:
        vision_encoder_decoder.settle(tensors, checkpoint.config, where=checkpoint.file)
        config, tensors = recognised(checkpoint, tensors, CAPTIONER_LAYOUTS)
    tokens = open_tokens(checkpoint.file.parent, (config.pad, config.start, config.end))
    preparation = _preparation(checkpoint, config, foreign=foreign)
    return TrainedCaptioner(model_of_tokens(config, tokens, tensors, checkpoint), tokens, preparation, checkpoint.card)


def no_labels(where: object) -> ModelFileError:
    """Return the error for a captioner where a model with labels or feature vectors is needed."""
    hint = "give it to vitrail caption, evaluate, serve, convert or summary"
    return ModelFileError("a captioner gives no labels and no vectors", where=where, hint=hint)


def _preparation(checkpoint: Checkpoint, config: Any, *, foreign: bool) -> Preparation:
    where = checkpoint.file.parent / PREPROCESSOR
    if checkpoint.preprocessor is None:
        raise ModelFileError(f"{PREPROCESSOR} is missing", where=where.parent, hint="give a complete model folder")
    of_type = {"model_type": VIT.model_types[0]} if foreign else {}
    preparation = Preparation.from_hugging_face(checkpoint.preprocessor, where=where, **of_type)
    if (preparation.image_size, preparation.channels) != (config.image_size, config.channels):
        what = "the preparation returns images of another size or number of channels than the model takes"
        raise ModelFileError(what, where=where, hint="write the folder again")
    return preparation
