"""The layout of transformers' VisionEncoderDecoder of a ViT and GPT-2.

https://github.com/huggingface/transformers. GPT-2 is our decoder with learned positions and unscaled embeddings. Computed
positions are written as a learned table. Scaled embeddings are written as two tables, one for inputs and one for logits.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.models.configs.captioner import CaptionerConfig, encoder_config
from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.positions.text import sequence_table
from vitrail.settings import brief
from vitrail.weights.keys import Key, Shape, Transposed, layers, weight_and_bias, within, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.hugging_face.vit import VIT
from vitrail.weights.layouts.marian import SAME
from vitrail.weights.model_folder.description import EVERYWHERE, describe, described

MODEL_TYPE = "vision-encoder-decoder"
ENCODER, DECODER = "encoder.", "decoder.transformer."
TABLE, LOGITS, PROJECTION = f"{DECODER}wte.weight", "decoder.lm_head.weight", "enc_to_dec_proj"
BLOCK = DECODER + "h.{i}"
OURS = "decoder.{i}"
HINT = "give a model of a ViT and GPT-2, or use this one with transformers"
WHOLE = {*EVERYWHERE, "encoder", "decoder", "processor_class"}
"""Entries at the top level of ``config.json``."""


def _seen(encoder: ViTConfig) -> ViTConfig:
    return encoder.changed(pool="class", class_token=False)


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], size: Size | None, layout: Layout) -> dict[str, Any]:
    expand = shapes.get("decoder.0.mlp.layer.expand.weight")
    return dict(known) if expand is None else {**known, "mlp_dim": expand[0]}


def _share_out(state: Mapping[str, Tensor], config: CaptionerConfig, layout: Layout) -> dict[str, Tensor]:
    """Return our parameters in GPT-2's form: a position table, scaled embeddings, and image tokens projected to ``dim``."""
    ours, table = dict(state), state["embedding.weight"]
    if why := _no_vit(config.encoder):
        raise KeyError(f"{why} of the encoder")
    if config.patches_behind != "last":
        raise KeyError("patches_behind other than 'last'")
    if config.cross_heads not in (None, config.heads):
        raise KeyError("another number of heads for the image than for the text")
    if config.position != "learned":
        positions = sequence_table(config.dim, config.max_tokens, halves=config.position == "sincos-halves")
        ours["position.embedding"] = positions.to(table.device)
    if config.scale_embedding:
        ours.setdefault("output.weight", table)
        ours["embedding.weight"] = table * math.sqrt(config.dim)
    if (missing := config.dim - config.encoder.dim) < 0:
        raise KeyError("image tokens that are wider than text tokens")
    if missing:
        matrices = [name for name in state if name.endswith("cross.layer.key_value.weight")]
        ours |= {name: torch.nn.functional.pad(state[name], (0, missing)) for name in matrices}
        ours[f"{PROJECTION}.weight"] = torch.eye(config.dim, config.encoder.dim, device=table.device)
        ours[f"{PROJECTION}.bias"] = table.new_zeros(config.dim)
    return ours


def _no_vit(encoder: ViTConfig) -> str:
    """Return, in a few words, features of an encoder that transformers' ViT lacks; empty if there are none."""
    if lacking := VIT.lacks(encoder):
        return lacking
    ours = VIT.reading.canonical(_seen(encoder))
    theirs = VIT.reading.canonical(_seen(_encoder(describe(_seen(encoder), VIT))))
    differing = [name for name in ViTConfig.model_fields if getattr(ours, name) != getattr(theirs, name)]
    return ", ".join(name for name in differing if name not in encoder.training_only)


def _encoder(values: Mapping[str, Any]) -> ViTConfig:
    fields = {**VIT.fields, "mlp_dim": 4 * int(values.get("hidden_size", 768)), **described(values, VIT)}
    return encoder_config(ViTConfig.read({"num_classes": 0, **fields}, where="encoder"))


def _canonical(config: CaptionerConfig) -> CaptionerConfig:
    return config.changed(
        cross_heads=None,  # in this layout it always equals heads
        position="learned",
        tied=config.tied and not config.scale_embedding,
        scale_embedding=False,
        encoder=config.encoder.changed(**dict.fromkeys(config.encoder.training_only, 0.0)),
    )


def _describe(config: CaptionerConfig) -> dict[str, Any]:
    decoder = {
        **describe(config, DECODER_WORDS),
        "add_cross_attention": True,
        "is_decoder": True,
        "tie_word_embeddings": config.tied and not config.scale_embedding,
        "embd_pdrop": config.dropout,
        "bos_token_id": config.start,
        "eos_token_id": config.end,
        "pad_token_id": config.pad,
    }
    return {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": MODEL_TYPE,
        "is_encoder_decoder": True,
        "tie_word_embeddings": False,
        "dtype": "float32",
        "pad_token_id": config.pad,
        "decoder_start_token_id": config.start,
        "eos_token_id": config.end,
        "encoder": describe(_seen(config.encoder), VIT),
        "decoder": decoder,
    }


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return our configuration fields from ``config.json``.

    Raises:
        ConfigError: a value is impossible.
        ModelFileError: an entry that may change the output is not supported.
    """
    encoder, decoder = values.get("encoder"), values.get("decoder")
    if not isinstance(encoder, dict) or not isinstance(decoder, dict):
        raise ModelFileError("config.json has no sections encoder and decoder", where="config.json", hint=HINT)
    kinds = encoder.get("model_type"), decoder.get("model_type")
    if kinds != ("vit", "gpt2"):
        what = f"unsupported encoder {brief(kinds[0])} and decoder {brief(kinds[1])}"
        raise ModelFileError(what, where="config.json", hint=HINT)
    if unknown := [name for name in values if name not in WHOLE and not name.startswith("_")]:
        raise ModelFileError(f"unknown entry {unknown[0]}", where="config.json", hint=HINT)
    decoder = {**DECODER_WORDS.defaults, **decoder}
    name = decoder["activation_function"]
    decoder["activation_function"] = {**SAME, "gelu_new": "gelu_new"}.get(name, name) if isinstance(name, str) else name
    fields = {**described(decoder, DECODER_WORDS), "encoder": _encoder(encoder)}
    marks = {"pad": "pad_token_id", "start": "decoder_start_token_id", "end": "eos_token_id"}
    for ours, theirs in marks.items():
        stated = decoder.get(theirs) if values.get(theirs) is None else values[theirs]
        stated = decoder.get("bos_token_id") if stated is None and ours == "start" else stated
        if stated is None:
            raise ModelFileError(f"config.json has no {theirs}", where="config.json", hint=f"add {theirs} to it")
        fields[ours] = CaptionerConfig.read_field(ours, stated, where="config")
    return {**fields, "tied": decoder.get("tie_word_embeddings") is not False}


READING = Reading(
    architecture="Captioner",
    fields=_fields,
    choices=frozenset(),
    share_out=_share_out,
    canonical=_canonical,
)
VISION_ENCODER_DECODER = Layout(
    name=MODEL_TYPE,
    about="transformers' VisionEncoderDecoder of a ViT and GPT-2",
    reading=READING,
    keys={
        **within(VIT.keys, ENCODER, ENCODER),
        "embedding.weight": Key(TABLE),
        "position.embedding": Key(f"{DECODER}wpe.weight"),
        "output.weight": Key(LOGITS),
        **weight_and_bias(
            {
                f"{OURS}.attention.norm": f"{BLOCK}.ln_1",
                f"{OURS}.cross.norm": f"{BLOCK}.ln_cross_attn",
                f"{OURS}.mlp.norm": f"{BLOCK}.ln_2",
                "decoder_norm": f"{DECODER}ln_f",
                PROJECTION: PROJECTION,
            }
        ),
        **layers(
            {
                f"{OURS}.attention.layer.qkv": f"{BLOCK}.attn.c_attn",
                f"{OURS}.attention.layer.output": f"{BLOCK}.attn.c_proj",
                f"{OURS}.cross.layer.query": f"{BLOCK}.crossattention.q_attn",
                f"{OURS}.cross.layer.key_value": f"{BLOCK}.crossattention.c_attn",
                f"{OURS}.cross.layer.output": f"{BLOCK}.crossattention.c_proj",
                f"{OURS}.mlp.layer.expand": f"{BLOCK}.mlp.c_fc",
                f"{OURS}.mlp.layer.contract": f"{BLOCK}.mlp.c_proj",
            },
            ".weight",
            ".bias",
            Transposed,
        ),
    },
    aliases={r"^encoder\.(?=layers\.)": "encoder.encoder."},
    ignored=(r"encoder\.pooler\..*", r".*\.(attn|crossattention)\.(masked_)?bias"),  # the biases are masks of older versions
    fields={"norm": "pre", "position": "learned", "scale_embedding": False, "norm_eps": 1e-5},
    model_types=(MODEL_TYPE,),
    describe=_describe,
    read=_read,
)
DECODER_WORDS = Layout(
    name="gpt2",
    about="transformers' GPT-2",
    reading=READING,
    keys={},
    described={
        "vocabulary": "vocab_size", "max_tokens": "n_positions", "dim": "n_embd", "decoder_depth": "n_layer", "heads": "n_head",
        "mlp_dim": "n_inner", "norm_eps": "layer_norm_epsilon", "dropout": "resid_pdrop", "attention_dropout": "attn_pdrop",
    },
    defaults={
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "resid_pdrop": 0.1, "attn_pdrop": 0.1,
    },
    harmless=words(
        """
        embd_pdrop gradient_checkpointing n_ctx reorder_and_upcast_attn summary_activation summary_first_dropout
        summary_proj_to_labels summary_type summary_use_proj
        """
    ),
    fixed={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
    activations={"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"},
    activation="activation_function",
    activation_field="activation",
    model_types=("gpt2",),
    classes=("GPT2LMHeadModel", "GPT2LMHeadModel"),
)  # fmt: skip
"""The entries of the section ``decoder`` in ``config.json``."""


def settle(tensors: dict[str, Tensor], values: Mapping[str, Any], *, where: object) -> None:
    """Convert tensors to our form, in place: merge equal tables, and fold the projection of image tokens into keys and values.

    Raises:
        ModelFileError: tables that should be equal differ, or matrices do not fit together.
    """
    decoder = values.get("decoder")
    tied = not isinstance(decoder, dict) or decoder.get("tie_word_embeddings") is not False
    if tied and LOGITS in tensors:
        if TABLE in tensors and not torch.equal(tensors[LOGITS], tensors[TABLE]):
            what = "embeddings and logits have different tables, but config.json states that they share one"
            raise ModelFileError(what, where=where, hint="download the files again")
        tensors[TABLE] = tensors.pop(LOGITS)
    weight, bias = (tensors.pop(f"{PROJECTION}.{part}", None) for part in ("weight", "bias"))
    if weight is None or bias is None:
        return
    for name in [name for name in tensors if name.endswith("crossattention.c_attn.weight")]:
        matrix, own = tensors[name], name.removesuffix("weight") + "bias"
        try:  # W (P m + b) + c = (W P) m + (W b + c); GPT-2's matrices are transposed
            tensors[own] = (bias.double() @ matrix.double() + tensors[own].double()).float()
            tensors[name] = (weight.T.double() @ matrix.double()).float()
        except (RuntimeError, KeyError) as error:
            what = f"{PROJECTION} does not fit {name}: {error}"
            raise ModelFileError(what, where=where, hint="download the files again") from None
