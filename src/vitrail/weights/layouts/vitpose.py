"""The layouts of ViTPose: of the authors (and MMPose 0.x), of MMPose 1.x and of transformers."""

from collections.abc import Mapping
from typing import Any

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.vitpose import DECODER_DIM, ViTPoseConfig
from vitrail.settings import brief
from vitrail.weights.keys import Key, block, weight_and_bias, words
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.hugging_face.vit import ACTIVATIONS, BICUBIC, BLOCK, OUTPUT, QKV, WITH_DROPOUT
from vitrail.weights.layouts.vit.keys import not_plain
from vitrail.weights.layouts.vitpose_reading import READING, decoder_keys
from vitrail.weights.model_folder.description import describe, described
from vitrail.weights.normalization import IMAGENET, Colours

COLOURS = Colours(IMAGENET.mean, IMAGENET.std, resampling="bilinear")
NEEDS = ("position.embedding", "norm.weight", "decoder.heatmaps.weight")
EXPERTS = "blocks.{i}.mlp.layer.experts.{e}"
FIXED = {"patch_padding": 2, "shared_position": True}
"""Fields that all these models share."""


def _lacks(config: ViTPoseConfig) -> str:
    return "model with a single expert" if config.experts == 1 else not_plain(config)


def _lacks_head(config: ViTPoseConfig) -> str:
    """Return a few words for experts other than the first, as other heads predict their keypoints; else as `_lacks`."""
    return f"keypoint_head for expert {config.expert}" if config.expert else _lacks(config)


DECONVOLUTIONS = (("deconv_layers.0", "deconv_layers.3"), ("deconv_layers.1", "deconv_layers.4"), "final_layer")
ORIGINAL = Layout(
    name="vitpose-original",
    written=False,
    about="the authors' ViTPose",
    prefix="backbone.",
    reading=READING,
    keys={
        "position.embedding": Key("pos_embed", ndim=3),
        **block("blocks.{i}", "norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"),
        **weight_and_bias(
            {EXPERTS: "blocks.{i}.mlp.experts.{e}", "embedding.projection": "patch_embed.proj", "norm": "last_norm"}
        ),
    },
    heads=decoder_keys("keypoint_head", *DECONVOLUTIONS),
    ignored=(r"associate_keypoint_heads\..*", r"backbone\.cls_token"),
    needs=NEEDS,
    fields={**FIXED, "norm_eps": 1e-6},
    lacks=_lacks_head,
    colours=COLOURS,
    interpolation=BICUBIC,
)
"""The authors' layout. From ViTPose+, only the head for COCO and the first expert are read."""

MMPOSE = Layout(
    name="mmpose",
    about="MMPose's ViTPose",
    prefix="backbone.",
    reading=READING,
    keys={
        "position.embedding": Key("pos_embed", ndim=3),
        **block("layers.{i}", "ln1", "attn.qkv", "attn.proj", "ln2", "ffn.layers.0.0", "ffn.layers.1"),
        **weight_and_bias({"embedding.projection": "patch_embed.projection", "norm": "ln1"}),
    },
    heads=decoder_keys("head", *DECONVOLUTIONS),
    needs=NEEDS,
    fields={**FIXED, "shared_position": False, "norm_eps": 1e-6},
    lacks=not_plain,
    colours=COLOURS,
    interpolation=BICUBIC,
)

BACKBONE = {**WITH_DROPOUT, "qkv_bias": "qkv_bias", "expert_dim": "part_features"}
"""Our fields in the section ``backbone_config``, to transformers' names."""
EXPERT = "expert"
"""Vitrail's own entry in this section: the expert to use, if not the first. transformers takes it as an input instead."""
SECTION = "backbone_config"


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return our fields from transformers' ``config.json``; raises `ModelFileError` for entries that are not supported."""
    backbone = values.get(SECTION)
    if not isinstance(backbone, dict):
        if not values:
            return {}
        what, hint = f"{SECTION} is {brief(backbone)}", "give the config.json that belongs to the weights"
        raise ModelFileError(what, where="config.json", hint=hint)
    if (kind := backbone.get("model_type", "vitpose_backbone")) != "vitpose_backbone":
        what = f"unsupported model_type of the backbone: {brief(kind)}"
        hint = "give a ViTPose with a vitpose_backbone"
        raise ModelFileError(what, where="config.json", hint=hint)
    flat = {**{name: value for name, value in values.items() if name != SECTION}, **backbone, "model_type": "vitpose"}
    stated = described(flat, TRANSFORMERS)
    depth = stated.get("depth", 12)
    if flat.get("out_indices") not in (None, [depth], [-1]) or flat.get("out_features") not in (None, [f"stage{depth}"]):
        what = f"the decoder reads {brief(flat.get('out_features') or flat['out_indices'])}, not the last of {depth} blocks"
        raise ModelFileError(what, where="config.json", hint="give a model whose decoder reads the last block")
    stated["decoder"] = "simple" if flat.get("use_simple_decoder", True) else "classic"
    if EXPERT in flat:
        stated["expert"] = ViTPoseConfig.read_field("expert", flat[EXPERT])
    count, values_of_an_expert = flat.get("num_experts", 1), stated.pop("expert_dim", 0)
    if count == 1:  # transformers' value for a model without experts
        return stated | {"experts": 0}
    return stated | {"experts": ViTPoseConfig.read_field("experts", count), "expert_dim": values_of_an_expert}


def _describe(config: ViTPoseConfig) -> dict[str, Any]:
    """Return transformers' ``config.json`` for the model; raises `ConfigError` for one that transformers cannot build."""
    values = describe(config, TRANSFORMERS)
    backbone = {name: values.pop(name) for name in (*BACKBONE.values(), "hidden_act")}
    if config.mlp_dim % config.dim:
        what = f"transformers' ViTPose requires an mlp_dim that is a multiple of dim {config.dim}, not {config.mlp_dim}"
        raise ConfigError(what, where="--layout", hint="give another layout")
    if config.decoder == "classic" and config.decoder_dim != DECODER_DIM:
        what = f"transformers' ViTPose requires {DECODER_DIM} channels in its decoder, not {config.decoder_dim}"
        raise ConfigError(what, where="--layout", hint="give another layout")
    own = {
        "model_type": "vitpose_backbone",
        "image_size": list(config.image_size),
        "patch_size": list(config.patch_size),
        "mlp_ratio": config.mlp_dim // config.dim,
        "num_experts": config.experts or 1,
        "out_indices": [config.depth],
        "out_features": [f"stage{config.depth}"],
        **({EXPERT: config.expert} if config.expert else {}),
    }
    return {**values, SECTION: {**backbone, **own}, "use_simple_decoder": config.decoder == "simple", "scale_factor": 4}


TRANSFORMERS = Layout(
    name="vitpose",
    about="transformers' ViTPose",
    prefix="backbone.",
    reading=READING,
    keys={
        "position.embedding": Key("embeddings.position_embeddings", ndim=3),
        **block(BLOCK, "layernorm_before", QKV, OUTPUT, "layernorm_after", "mlp.fc1", "mlp.fc2"),
        **weight_and_bias(
            {
                "embedding.projection": "embeddings.patch_embeddings.projection",
                EXPERTS: f"{BLOCK}.mlp.experts.{{e}}",
                "norm": "layernorm",
            }
        ),
    },
    heads=decoder_keys("head", ("deconv1", "deconv2"), ("batchnorm1", "batchnorm2"), "conv"),
    needs=NEEDS,
    fields={**FIXED, "norm_eps": 1e-12},
    defaults={"image_size": [256, 192], "num_attention_heads": 12, "num_hidden_layers": 12, "layer_norm_eps": 1e-12},
    described=BACKBONE,
    harmless=words("edges skeleton mlp_ratio num_experts expert intermediate_size use_simple_decoder"),
    fixed={"scale_factor": (4,), "backbone": (None,), "backbone_kwargs": (None, {}), "use_pretrained_backbone": (None, False),
           "use_timm_backbone": (None, False)},
    read=_read,
    activations=ACTIVATIONS,
    lacks=_lacks,
    model_types=("vitpose",),
    classes=("VitPoseForPoseEstimation", ""),
    describe=_describe,
    colours=COLOURS,
    interpolation=BICUBIC,
)  # fmt: skip
