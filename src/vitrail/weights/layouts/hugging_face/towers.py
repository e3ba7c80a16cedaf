"""The layouts of transformers' image encoders that were trained with a text tower: SigLIP, CLIP and AIMv2."""

from dataclasses import replace

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, block, weight_and_bias, words
from vitrail.weights.layouts.hugging_face.vit import ACTIVATIONS, BICUBIC, DEFAULTS, DESCRIBED, VIT
from vitrail.weights.layouts.vit.keys import Flat, not_plain_or_no_bias, not_square, own_heads, thirds
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import CLIP_COLOURS, Colours

TOWER = "encoder.layers.{i}"
QKV = tuple(f"self_attn.{part}_proj" for part in "qkv")
TOWER_BLOCK = {
    **block(TOWER, "layer_norm1", QKV, "self_attn.out_proj", "layer_norm2", "mlp.fc1", "mlp.fc2"),
    **weight_and_bias({"norm": "post_layernorm"}),
}
TEXT = (r"text_model\..*", r"text_projection\..*", r"logit_(scale|bias)", r"(vision_model\.)?embeddings\.position_ids")
"""Keys of CLIP and SigLIP outside the image tower."""
TOWERS = words(
    """
    direct_kd dropout logit_scale_init_value num_layers projection_dim text_config text_config_dict text_model_name vision_config
    vision_model_name
    """
)
"""Entries in the ``config.json`` of a model with an image tower and a text tower."""
TOWER_DESCRIBED = {**DESCRIBED, "mlp_dim": "intermediate_size", "attention_dropout": "attention_dropout"}

SIGLIP = ViTLayout(
    name="siglip",
    about="transformers' SiglipVisionModel",
    prefix="vision_model.",
    keys={
        "position.embedding": Key("embeddings.position_embedding.weight"),
        **TOWER_BLOCK,
        "pool.query": Key("head.probe", ndim=3),
        **{f"pool.attention.{ours}": key for ours, key in thirds("head.attention.in_proj").items()},
        **weight_and_bias(
            {
                "embedding.projection": "embeddings.patch_embedding",
                "pool.attention.output": "head.attention.out_proj",
                "pool.mlp.norm": "head.layernorm",
                "pool.mlp.layer.expand": "head.mlp.fc1",
                "pool.mlp.layer.contract": "head.mlp.fc2",
            }
        ),
    },
    needs=("position.embedding", "pool.query"),
    ignored=TEXT,
    fields={"norm_eps": 1e-6, "mlp": "gelu-tanh"},
    defaults=DEFAULTS,
    described=TOWER_DESCRIBED,
    harmless=TOWERS,
    fixed={"vision_use_head": (True,), "vision_config_dict": (None,)},  # SigLIP ignores it, unlike CLIP
    activations=ACTIVATIONS,
    lacks=lambda config: not_plain_or_no_bias(config) or not_square(config),
    model_types=("siglip_vision_model", "siglip"),
    classes=("", "SiglipVisionModel"),
    colours=Colours(fit="squash"),
    interpolation=BICUBIC,
)

CLIP = ViTLayout(
    name="clip",
    about="transformers' CLIPVisionModel",
    prefix="vision_model.",
    keys={
        "class_token": Key("embeddings.class_embedding", ndim=1),
        "position.embedding": Key("embeddings.position_embedding.weight"),
        "embedding.projection.weight": Key("embeddings.patch_embedding.weight"),
        **weight_and_bias({"embedding_norm": "pre_layrnorm"}),
        **TOWER_BLOCK,
    },
    heads={"head.linear.weight": Key("visual_projection.weight")},
    needs=(*VIT.needs, "embedding_norm.weight"),
    ignored=TEXT,
    fields={"norm_eps": 1e-5, "mlp": "quick-gelu", "head": "projection"},
    defaults=DEFAULTS,
    described=TOWER_DESCRIBED,
    harmless=TOWERS | {"vision_config_dict"},
    activations=ACTIVATIONS,
    lacks=lambda config: not_plain_or_no_bias(config) or not_square(config),
    model_types=(
        "clip_vision_model", "clip", "metaclip_2_vision_model", "metaclip_2", "altclip_vision_model", "altclip",
        "chinese_clip_vision_model", "chinese_clip",
    ),
    extra=lambda config: {"projection_dim": config.num_classes} if config.num_classes else {},
    classes=("CLIPVisionModelWithProjection", "CLIPVisionModel"),
    colours=CLIP_COLOURS,
    interpolation=BICUBIC,
)  # fmt: skip


def _siglip2(config: ViTConfig) -> dict[str, object]:
    """Return the entry for the number of positions; raises `ConfigError` unless grid and patches are square."""
    if len(set(config.grid)) > 1 or len(set(config.patch_size)) > 1 or config.crop_remainder:
        what = "transformers' Siglip2VisionModel requires square patches in a square grid"
        raise ConfigError(what, where="--layout", hint="give another layout")
    return {"num_patches": config.grid[0] * config.grid[1]}


SIGLIP2 = replace(
    SIGLIP,
    name="siglip2",
    about="transformers' Siglip2VisionModel",
    keys={**SIGLIP.keys, "embedding.projection.weight": Flat("embeddings.patch_embedding.weight")},
    defaults={"num_attention_heads": 12},
    described={ours: theirs for ours, theirs in TOWER_DESCRIBED.items() if ours != "image_size"},
    harmless=TOWERS | {"num_patches"},
    model_types=("siglip2_vision_model", "siglip2"),
    extra=_siglip2,
    classes=("", "Siglip2VisionModel"),
    interpolation=Interpolation("bilinear"),
)

QKV_OF_AIM = tuple(f"attention.{part}_proj" for part in "qkv")
AIMV2 = ViTLayout(
    name="aimv2",
    about="transformers' Aimv2VisionModel",
    prefix="vision_model.",
    keys={
        "position.embedding": Key("embeddings.position_embedding.weight"),
        **weight_and_bias({"embedding.projection": "embeddings.patch_embed"}),
        **block(TOWER, "", QKV_OF_AIM, "attention.out_proj", "", ("ffn.gate_proj", "ffn.up_proj"), "ffn.down_proj"),
        "embedding.token_norm.weight": Key("embeddings.rms_norm.weight"),
        "blocks.{i}.attention.norm.weight": Key(f"{TOWER}.rms_norm1.weight"),
        "blocks.{i}.mlp.norm.weight": Key(f"{TOWER}.rms_norm2.weight"),
        "norm.weight": Key("rms_norm.weight"),
    },
    needs=("embedding.token_norm.weight",),
    ignored=(r"embeddings\.position_ids",),
    fields={"norm_eps": 1e-5, "pool": "mean", "position": "sincos-2d", "linear_bias": False},
    defaults={"image_size": 224, "num_attention_heads": 8},
    described={
        **{ours: theirs for ours, theirs in DESCRIBED.items() if ours != "norm_eps"},
        "mlp_dim": "intermediate_size",
        "attention_dropout": "attention_dropout",
        "norm_eps": "rms_norm_eps",
    },
    harmless=words("is_native mlp_bias qkv_bias use_head"),
    activations={"swiglu": "silu"},
    lacks=own_heads,
    model_types=("aimv2_vision_model",),
    extra=lambda config: {
        "is_native": config.position == "sincos-2d",
        "mlp_bias": config.linear_bias,
        "qkv_bias": config.qkv_bias,
        "use_head": False,
    },
    classes=("", "Aimv2VisionModel"),
    colours=replace(CLIP_COLOURS, fit="squash"),
    interpolation=BICUBIC,
)
