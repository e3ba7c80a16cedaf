"""The layout of transformers' MarianMT: a post-norm Transformer whose position encodings have all sines before all cosines.

https://github.com/huggingface/transformers, after https://github.com/marian-nmt/marian. A model with alternating sines and
cosines can be written in this layout: its channels are reordered in all weights, and its output stays the same.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.models.configs.texts import TextConfig, TransformerConfig
from vitrail.parts.positions.text import sequence_table
from vitrail.settings import brief
from vitrail.weights.keys import Key, block, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading
from vitrail.weights.model_folder.description import described

SHARED, LOGITS, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
TABLES = {side: f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
POSITIONS = [f"model.{side}.embed_positions.weight" for side in TABLES]
ENCODER, DECODER = "model.encoder.layers.{i}", "model.decoder.layers.{i}"
QKV = tuple(f"self_attn.{part}_proj" for part in "qkv")
LAYERS = ("self_attn_layer_norm", QKV, "self_attn.out_proj", "final_layer_norm", "fc1", "fc2")
BEAMS = 5
"""Default beam width of ``generate``, the same as Vitrail's."""
CLOSE = 1e-4
"""Largest difference between position encodings in a file and computed ones: some are stored in half precision."""


def _share_out(state: Mapping[str, Tensor], config: TransformerConfig, layout: Layout) -> dict[str, Tensor]:
    """Return our parameters with a bias of the logits, and with channels in the order of Marian's position encodings."""
    ours = dict(state)
    if not config.output_bias:
        ours["output_bias"] = state["embedding.weight"].new_zeros(config.vocabulary)
    if config.position == "sincos":
        order = torch.cat([torch.arange(0, config.dim, 2), torch.arange(1, config.dim, 2)])
        ours = {name: _ordered(name, tensor, order) for name, tensor in ours.items()}
    return ours


def _ordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Reorder the D channels of the residual stream in a parameter, at its inputs or outputs."""
    if name == "output_bias":
        return tensor
    channels = order.to(tensor.device)
    if ".norm." in name or name.endswith((".layer.output.weight", ".contract.weight", ".layer.output.bias", ".contract.bias")):
        return tensor[channels]
    return tensor[:, channels] if tensor.ndim == 2 else tensor


def _extra(config: TransformerConfig) -> dict[str, Any]:
    """Return further entries of ``config.json``; encoder and decoder have the same sizes, and no end token is forced."""
    return {
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.mlp_dim,
        "decoder_vocab_size": config.vocabulary,
        "share_encoder_decoder_embeddings": config.tied,
        "tie_word_embeddings": config.tied,
        "is_encoder_decoder": True,
        "bos_token_id": config.start,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


SAME = {"silu": "swish", "gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh"}
"""Other names of activations in transformers, to the names that this layout uses."""


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return our configuration fields from MarianMT's ``config.json``.

    Raises:
        ConfigError: a value is impossible.
        ModelFileError: an entry that may change the output is not supported.
    """
    values = {**MARIAN.defaults, **values}
    name = values["activation_function"]
    values["activation_function"] = SAME.get(name, name) if isinstance(name, str) else name
    for side, other in (
        ("decoder_attention_heads", "encoder_attention_heads"),
        ("decoder_ffn_dim", "encoder_ffn_dim"),
        ("decoder_vocab_size", "vocab_size"),
    ):
        if values.get(side) not in (None, values[other]):
            what = f"{side} is {brief(values[side])}, but {other} is {brief(values[other])}: they must be equal"
            raise ModelFileError(what, where="config.json", hint="give a model whose encoder and decoder have the same sizes")
    return described(values, MARIAN)


MARIAN = Layout(
    name="marian",
    about="transformers' Marian",
    reading=Reading(
        architecture="Transformer",
        fields=lambda shapes, known, size, layout: dict(known),
        share_out=_share_out,
        canonical=lambda config: config.changed(position="sincos-halves", output_bias=True),
    ),
    keys={
        "embedding.weight": (
            Key(SHARED, when=lambda config: config.tied, tells={"tied": True}),
            Key(TABLES["encoder"], when=lambda config: not config.tied, tells={"tied": False}),
        ),
        "target_embedding.weight": Key(TABLES["decoder"]),
        "output.weight": Key(LOGITS),
        "output_bias": Key(BIAS, ndim=2),
        **block(ENCODER, *LAYERS, ours="encoder.{i}"),
        **block(DECODER, *LAYERS, ours="decoder.{i}"),
        **weight_and_bias(
            {
                "decoder.{i}.cross.norm": f"{DECODER}.encoder_attn_layer_norm",
                "decoder.{i}.cross.layer.query": f"{DECODER}.encoder_attn.q_proj",
                "decoder.{i}.cross.layer.key_value": (f"{DECODER}.encoder_attn.k_proj", f"{DECODER}.encoder_attn.v_proj"),
                "decoder.{i}.cross.layer.output": f"{DECODER}.encoder_attn.out_proj",
            }
        ),
    },
    fields={"norm": "post", "norm_eps": 1e-5, "position": "sincos-halves", "output_bias": True},
    defaults={
        "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096, "d_model": 1024,
        "vocab_size": 58101, "max_position_embeddings": 1024, "pad_token_id": 58100, "decoder_start_token_id": 58100,
        "eos_token_id": 0, "scale_embedding": False, "activation_function": "gelu",
    },
    described={
        "vocabulary": "vocab_size", "pad": "pad_token_id", "start": "decoder_start_token_id", "end": "eos_token_id",
        "max_tokens": "max_position_embeddings", "dim": "d_model", "depth": "encoder_layers", "decoder_depth": "decoder_layers",
        "heads": "encoder_attention_heads", "mlp_dim": "encoder_ffn_dim", "scale_embedding": "scale_embedding",
        "dropout": "dropout", "attention_dropout": "attention_dropout", "hidden_dropout": "activation_dropout",
    },
    harmless=words(
        """
        add_bias_logits classif_dropout classifier_dropout decoder_attention_heads decoder_ffn_dim decoder_layerdrop
        decoder_vocab_size encoder_layerdrop gradient_checkpointing init_std num_hidden_layers share_encoder_decoder_embeddings
        """
    ),
    fixed={
        "static_position_embeddings": (True,), "normalize_embedding": (False,), "normalize_before": (False,),
        "add_final_layer_norm": (False,), "extra_pos_embeddings": (0,), "is_encoder_decoder": (True,), "is_decoder": (False,),
    },
    activations={"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "silu": "swish"},
    activation="activation_function",
    activation_field="activation",
    model_types=("marian",),
    classes=("MarianMTModel", "MarianMTModel"),
    extra=_extra,
    read=_stated,
)  # fmt: skip


def settle(tensors: dict[str, Tensor], values: Mapping[str, Any], *, where: object) -> None:
    """Rename embedding tables in place: a file may hold a shared table under several names, `MARIAN` has one name for each.

    Raises:
        ModelFileError: tables that should be equal differ, or position encodings are not sines and cosines.
    """
    for name in POSITIONS:
        table = tensors.pop(name, None)
        if table is not None and not _computed(table):
            what = f"{name} does not hold the sines and cosines of a MarianMT"
            raise ModelFileError(what, where=where, hint="give a model with computed position encodings, not learned ones")
    shared = tensors.pop(SHARED, None)
    encoder, decoder = (tensors.pop(name, shared) for name in TABLES.values())
    tied = values.get("tie_word_embeddings", True) is not False
    logits = tensors.pop(LOGITS, decoder if tied else None)
    one_table = tied and values.get("share_encoder_decoder_embeddings", True) is not False
    tables = {TABLES["encoder"]: encoder, TABLES["decoder"]: decoder, LOGITS: logits}
    if not one_table:
        tensors |= {name: table.clone() for name, table in tables.items() if table is not None}  # they must not share memory
        return
    given = [table for table in (shared, *tables.values()) if table is not None]
    if any(not torch.equal(table, given[0]) for table in given):
        what = "embeddings and logits have different tables, but config.json states that they share one"
        raise ModelFileError(what, where=where, hint="download the files again")
    if given:
        tensors[SHARED] = given[0]


def _computed(table: Tensor) -> bool:
    if table.ndim != 2 or not table.is_floating_point() or table.shape[1] % 2:
        return False
    expected = sequence_table(table.shape[1], len(table), halves=True)
    return bool((table.float() - expected).abs().max() < CLOSE) if table.numel() else True


def generation(config: TextConfig, beams: int = BEAMS) -> dict[str, Any]:
    """Return ``generation_config.json``, with which transformers decodes as Vitrail does, except for the length penalty."""
    return {
        "decoder_start_token_id": config.start,
        "pad_token_id": config.pad,
        "eos_token_id": config.end,
        "bad_words_ids": [[token] for token in sorted({config.pad, config.start} - {config.end})],
        "num_beams": beams,
        "max_length": config.max_tokens,
    }
