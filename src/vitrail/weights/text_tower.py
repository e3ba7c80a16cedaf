"""CLIP's text tower, read from files that also hold the image tower: transformers', OpenCLIP's and OpenAI's."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.data.text.tokenizer import named_failures, open_tokenizer
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.empty import no_numbers
from vitrail.models.text.text_tower import TextTower, TextTowerConfig
from vitrail.settings import brief
from vitrail.weights.formats.checkpoint import Checkpoint, tower
from vitrail.weights.formats.safe_files import TOKENIZER, section
from vitrail.weights.keys import Key, Transposed, block, weight_and_bias
from vitrail.weights.layouts.vit.clip import CLIP_ORIGINAL, OPENAI_NUMBERS
from vitrail.weights.model_folder.trained import fill

ACTIVATIONS = {"quick_gelu": "quick-gelu", "gelu": "gelu"}
HEAD_DIM = 64
"""Width of an attention head in every published CLIP, for files that do not state it."""
LARGEST = 20
"""An upper bound of the absolute value of ``logit_scale``: CLIP's is at most log 100."""
QKV = tuple(f"self_attn.{part}_proj" for part in "qkv")
HUGGING_FACE: dict[str, Key] = {
    "tokens.weight": Key("text_model.embeddings.token_embedding.weight"),
    "position": Key("text_model.embeddings.position_embedding.weight"),
    "projection.weight": Key("text_projection.weight"),
    **block("text_model.encoder.layers.{i}", "layer_norm1", QKV, "self_attn.out_proj", "layer_norm2", "mlp.fc1", "mlp.fc2"),
    **weight_and_bias({"norm": "text_model.final_layer_norm"}),
}
ORIGINAL: dict[str, Key] = {
    "tokens.weight": Key("token_embedding.weight"),
    "position": Key("positional_embedding"),
    "projection.weight": Transposed("text_projection"),
    **{ours: key for ours, key in CLIP_ORIGINAL.keys.items() if ours.startswith("blocks.") and isinstance(key, Key)},
    **weight_and_bias({"norm": "ln_final"}),
}
"""Vitrail's parameters to OpenAI's keys. Blocks of both towers have the same keys."""
OPEN_CLIP_TEXT = {"context_length", "vocab_size", "width", "heads", "layers"}
"""Entries of OpenCLIP's ``text_cfg`` for CLIP's own text tower; any other entry means another model."""


def read_text_tower(checkpoint: Checkpoint) -> tuple[TextTower, float]:
    """Return the text tower in a checkpoint, and the factor by which cosines of texts and images are multiplied.

    Raises:
        ModelFileError: the checkpoint has no text tower, or one of an unknown kind.
    """
    tensors = checkpoint.tensors
    rows = next((rows for rows in (HUGGING_FACE, ORIGINAL) if rows["tokens.weight"].name in tensors), None)
    if rows is None or "logit_scale" not in tensors:
        hint = "give a complete CLIP: a folder, or a hub id such as openai/clip-vit-base-patch32"
        raise ModelFileError("the file holds no text tower", where=checkpoint.file, hint=hint)
    try:
        ours = _read(tensors, rows)
        config, scale = _config(checkpoint, ours), _scale(tensors["logit_scale"])
        with no_numbers():
            tower = TextTower(config)
    except (KeyError, RuntimeError, ConfigError) as error:
        what = f"tensors of the text tower do not fit together: {error}"  # the error is torch's
        if isinstance(error, KeyError | ConfigError):
            what = error.what if isinstance(error, ConfigError) else f"the text tower lacks {error.args[0]}"
        raise ModelFileError(what, where=checkpoint.file, hint="give the file as it was published") from None
    fill(tower, ours, where=checkpoint.file)
    return tower.eval(), scale


def _scale(logit_scale: Tensor) -> float:
    if logit_scale.numel() != 1 or not abs(value := logit_scale.float().item()) < LARGEST:
        raise ConfigError(f"logit_scale is no single number below {LARGEST}")
    return math.exp(value)


def _read(tensors: Mapping[str, Tensor], rows: Mapping[str, Key]) -> dict[str, Tensor]:
    """Return the tensors under Vitrail's parameter names; raises `KeyError` with the first missing key."""
    pattern = re.compile(re.escape(rows["blocks.{i}.mlp.norm.weight"].name).replace(r"\{i\}", r"(\d{1,4})"))
    depth = 1 + max((int(match[1]) for name in tensors if (match := pattern.fullmatch(name))), default=-1)
    ours = {}
    for name, key in rows.items():
        for i in range(depth) if "{i}" in name else (0,):
            ours[name.format(i=i)] = key.read([tensors[theirs.format(i=i)].float() for theirs in key.names], None)
    return ours


def _config(checkpoint: Checkpoint, ours: Mapping[str, Tensor]) -> TextTowerConfig:
    """Return the configuration: sizes from the tensors; heads, activation and epsilon from ``config.json``, else OpenAI's."""
    sized = ("tokens.weight", "position", "blocks.0.mlp.layer.expand.weight", "projection.weight")
    if flat := [name for name in sized if ours[name].ndim != 2]:
        raise ConfigError(f"{flat[0]} of the text tower is no matrix")
    vocabulary, length, mlp_dim, output_dim = (len(ours[name]) for name in sized)
    dim, stated = ours["tokens.weight"].shape[1], _stated(checkpoint)
    sizes = {"vocabulary": vocabulary, "length": length, "dim": dim, "mlp_dim": mlp_dim, "output_dim": output_dim}
    depth = sum(name.endswith("qkv.weight") for name in ours)
    heads = stated.pop("heads", None) or max(1, dim // HEAD_DIM)
    return TextTowerConfig.read({**sizes, "depth": depth, "heads": heads, **stated}, where="text_config")


def _stated(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the text tower's fields that ``config.json`` states; raises `ModelFileError` for a model other than CLIP."""
    config = checkpoint.config
    if "model_cfg" in config:
        whole = section(config, "model_cfg")
        text = section(whole, "text_cfg")
        if unknown := sorted(text.keys() - OPEN_CLIP_TEXT):
            raise _refused(checkpoint.file, f"text_cfg has {brief(unknown)}")
        return {"heads": text.get("heads"), "activation": "quick-gelu" if whole.get("quick_gelu") else "gelu"}
    text = tower(config, "text_config")
    if not text:
        names = checkpoint.tensors.keys()
        is_open_clip = ORIGINAL["tokens.weight"].name in names and not names >= set(OPENAI_NUMBERS)
        return {"activation": "gelu"} if is_open_clip else {}  # almost all models of OpenCLIP have GELU, not quick GELU
    kind, activation = text.get("model_type", "clip_text_model"), text.get("hidden_act", "quick_gelu")
    if config.get("model_type", "clip") != "clip" or kind != "clip_text_model":
        raise _refused(checkpoint.file, f"its type is {brief(kind)} in a {brief(config.get('model_type'))}")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise _refused(checkpoint.file, f"its hidden_act is {brief(activation)}")
    heads = text.get("num_attention_heads", 8)
    return {"heads": heads, "activation": ACTIVATIONS[activation], "norm_eps": text.get("layer_norm_eps", 1e-5)}


def _refused(file: Path, why: str) -> ModelFileError:
    return ModelFileError(f"the text tower is not supported: {why}", where=file, hint="give a CLIP of OpenAI or OpenCLIP")


class ClipTokenizer:
    """A tokenizer for CLIP's text tower, read from ``tokenizer.json``. Needs the extra ``text``.

    Args:
        folder: the model folder.
        length: most tokens of a text; a longer text is cut, and keeps its last token.
        vocabulary: number of tokens in the model's vocabulary.

    Raises:
        ConfigError: the extra ``text`` is not installed.
        ModelFileError: ``tokenizer.json`` is missing or damaged.
    """

    def __init__(self, folder: Path, length: int, vocabulary: int):
        file = folder / TOKENIZER
        self.file, self.vocabulary = file, vocabulary
        if not file.is_file():
            hint = f"put the {TOKENIZER} of the model beside its weights"
            raise ModelFileError(f"{TOKENIZER} is missing", where=folder, hint=hint)
        self.tokenizer = open_tokenizer(file)
        self.tokenizer.no_padding()
        with named_failures(file):  # fails if length has no room for the start and end tokens
            self.tokenizer.enable_truncation(length)

    def __call__(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Return tokens (B, T), padded with 0, and the position of the last token of each text, (B,).

        Raises:
            ModelFileError: the tokenizer returns a token outside the model's vocabulary, or no token for a text.
        """
        with named_failures(self.file):
            found = [encoded.ids for encoded in self.tokenizer.encode_batch(texts)]
        if not all(found):
            what = f"{TOKENIZER} has no tokens for {brief(texts[found.index([])])}"
            raise ModelFileError(what, where=self.file, hint=f"use the {TOKENIZER} that was published with the model")
        if (largest := max(map(max, found))) >= self.vocabulary:
            what = f"{TOKENIZER} gives token {largest:,}, but the model's vocabulary has {self.vocabulary:,} tokens"
            raise ModelFileError(what, where=self.file, hint=f"use the {TOKENIZER} that was published with the model")
        ends = torch.tensor([len(ids) - 1 for ids in found])
        tokens = torch.zeros(len(found), int(ends.max()) + 1, dtype=torch.long)
        for row, ids in zip(tokens, found, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return tokens, ends
