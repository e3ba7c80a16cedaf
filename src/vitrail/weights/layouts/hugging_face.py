"""Hugging Face transformers' models of vision (https://github.com/huggingface/transformers)."""

from dataclasses import replace

from vitrail.errors import ConfigError
from vitrail.models.config import ViTConfig
from vitrail.parts.positions import ANTIALIASED, Interpolation
from vitrail.weights.layout import CLIP_COLOURS, IMAGENET, Colours, Key, Layout, thirds, weight_and_bias, words

BICUBIC = Interpolation(antialias=False)
"""How transformers resizes positions."""
ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "quick-gelu": "quick_gelu"}
"""Our activations by transformers' names."""
DESCRIBED = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "dim": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "norm_eps": "layer_norm_eps",
}
WITH_DROPOUT = {**DESCRIBED, "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
EMBEDDINGS = {
    "class_token": Key("embeddings.cls_token", ndim=3),
    "position.embedding": Key("embeddings.position_embeddings", ndim=3),
    **weight_and_bias({"embedding.projection": "embeddings.patch_embeddings.projection"}),
}
BLOCK = "encoder.layer.{i}"
ATTENTION: dict[str, str | tuple[str, ...]] = {
    "blocks.{i}.attention.layer.qkv": tuple(f"{BLOCK}.attention.attention.{part}" for part in ("query", "key", "value")),
    "blocks.{i}.attention.layer.output": f"{BLOCK}.attention.output.dense",
}
IN_MEMORY = {
    r"^layers\.(\d+)\.": r"encoder.layer.\1.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
}
"""How transformers 5 calls in memory what it writes under its older names."""

VIT = Layout(
    name="vit",
    about="transformers' ViT",
    prefix="vit.",
    keys={
        **EMBEDDINGS,
        **weight_and_bias(
            {
                "blocks.{i}.attention.norm": f"{BLOCK}.layernorm_before",
                **ATTENTION,
                "blocks.{i}.mlp.norm": f"{BLOCK}.layernorm_after",
                "blocks.{i}.mlp.layer.expand": f"{BLOCK}.intermediate.dense",
                "blocks.{i}.mlp.layer.contract": f"{BLOCK}.output.dense",
                "norm": "layernorm",
            }
        ),
    },
    heads=weight_and_bias({"head.linear": "classifier"}),
    aliases={
        **IN_MEMORY,
        r"^(encoder\.layer\.\d+)\.mlp\.fc1\.": r"\1.intermediate.dense.",
        r"^(encoder\.layer\.\d+)\.mlp\.fc2\.": r"\1.output.dense.",
    },
    ignored=(r"(vit\.)?pooler\..*", r"(vit\.)?embeddings\.mask_token"),
    fields={"norm_eps": 1e-12, "pool": "class"},
    described={**WITH_DROPOUT, "mlp_dim": "intermediate_size", "qkv_bias": "qkv_bias"},
    harmless=words("pooler_act pooler_output_size"),
    pools=("class",),
    activations=ACTIVATIONS,
    model_types=("vit",),
    classes=("ViTForImageClassification", "ViTModel"),
    colours=Colours(resampling="bilinear", fit="squash"),
    interpolation=BICUBIC,
)

MAE = replace(
    VIT,
    name="vit-mae",
    about="the encoder of transformers' ViTMAE",
    prefix="vit.",
    heads={},
    ignored=(*VIT.ignored, r"decoder\..*"),
    harmless=words(
        """
        decoder_hidden_size decoder_intermediate_size decoder_num_attention_heads decoder_num_hidden_layers mask_ratio
        norm_pix_loss
        """
    ),
    model_types=("vit_mae",),
    classes=("", "ViTMAEModel"),
    colours=replace(IMAGENET, resampling="bilinear", fit="squash", crop_ratio=1.0),
)

DEIT = replace(
    VIT,
    name="deit",
    about="transformers' DeiT",
    prefix="deit.",
    keys={**VIT.keys, "distillation_token": Key("embeddings.distillation_token", ndim=3)},
    needs=(*VIT.needs, "distillation_token"),
    heads=weight_and_bias({"head.linear": "cls_classifier", "head_distillation.linear": "distillation_classifier"}),
    older=weight_and_bias({"head.linear": "classifier"}),
    ignored=(r"(deit\.)?pooler\..*", r"(deit\.)?embeddings\.mask_token"),
    model_types=("deit",),
    classes=("DeiTForImageClassificationWithTeacher", ""),
    colours=IMAGENET,
)


def _dinov2(config: ViTConfig) -> dict[str, object]:
    """transformers computes the MLP's width from a whole ratio, and of SwiGLU two thirds of that in multiples of 8."""
    gated = config.mlp == "swiglu"

    def width(ratio: int) -> int:
        return (config.dim * ratio * 2 // 3 + 7) // 8 * 8 if gated else config.dim * ratio

    ratio = next((ratio for ratio in range(1, 17) if width(ratio) == config.mlp_dim), None)
    if ratio is None:
        what = f"transformers' Dinov2 has no MLP of {config.mlp_dim} in a width of {config.dim}"
        raise ConfigError(what, where="--layout", hint="give another layout")
    return {"mlp_ratio": ratio, "use_swiglu_ffn": gated}


DINOV2 = Layout(
    name="dinov2",
    about="transformers' Dinov2",
    prefix="dinov2.",
    keys={
        **EMBEDDINGS,
        "blocks.{i}.attention.scale.gamma": Key(f"{BLOCK}.layer_scale1.lambda1"),
        "blocks.{i}.mlp.scale.gamma": Key(f"{BLOCK}.layer_scale2.lambda1"),
        **weight_and_bias(
            {
                "blocks.{i}.attention.norm": f"{BLOCK}.norm1",
                **ATTENTION,
                "blocks.{i}.mlp.norm": f"{BLOCK}.norm2",
                "blocks.{i}.mlp.layer.expand": f"{BLOCK}.mlp.fc1",
                "blocks.{i}.mlp.layer.contract": f"{BLOCK}.mlp.fc2",
                "norm": "layernorm",
            }
        ),
    },
    heads=weight_and_bias({"head.linear": "classifier"}),
    aliases=IN_MEMORY,
    needs=(*VIT.needs, "blocks.0.attention.scale.gamma"),
    ignored=(r"(dinov2\.)?embeddings\.mask_token",),
    fields={"norm_eps": 1e-6},
    described={**WITH_DROPOUT, "qkv_bias": "qkv_bias", "layer_scale": "layerscale_value", "stochastic_depth": "drop_path_rate"},
    harmless=words("apply_layernorm intermediate_size mlp_ratio reshape_hidden_states use_mask_token use_swiglu_ffn"),
    pools=("class+mean",),
    activations=ACTIVATIONS,
    extra=_dinov2,
    model_types=("dinov2",),
    classes=("Dinov2ForImageClassification", "Dinov2Model"),
    colours=replace(IMAGENET, resampling="bicubic"),
    interpolation=BICUBIC,
)

GATED = weight_and_bias(
    {"blocks.{i}.mlp.layer.expand": f"{BLOCK}.mlp.weights_in", "blocks.{i}.mlp.layer.contract": f"{BLOCK}.mlp.weights_out"}
)
GATED_IN_MEMORY = weight_and_bias({"blocks.{i}.mlp.layer.expand": (f"{BLOCK}.mlp.gate_proj", f"{BLOCK}.mlp.up_proj")})
DINOV2_SWIGLU = replace(
    DINOV2,
    name="dinov2-swiglu",
    about="transformers' Dinov2 with SwiGLU",
    keys={**DINOV2.keys, **GATED},
    older=GATED_IN_MEMORY,
    aliases={**IN_MEMORY, r"\.mlp\.down_proj\.": ".mlp.weights_out."},
    activations={"swiglu": "gelu"},
)

DINOV2_REGISTERS = replace(
    DINOV2,
    name="dinov2-registers",
    about="transformers' Dinov2WithRegisters",
    prefix="dinov2_with_registers.",
    keys={**DINOV2.keys, "registers": Key("embeddings.register_tokens", ndim=3)},
    needs=("registers", *DINOV2.needs),
    ignored=(r"(dinov2_with_registers\.)?embeddings\.mask_token",),
    described={**DINOV2.described, "registers": "num_register_tokens"},
    model_types=("dinov2_with_registers",),
    classes=("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersModel"),
    interpolation=ANTIALIASED,
)

DINOV2_REGISTERS_SWIGLU = replace(
    DINOV2_REGISTERS,
    name="dinov2-registers-swiglu",
    about="transformers' Dinov2WithRegisters with SwiGLU",
    keys={**DINOV2_REGISTERS.keys, **GATED},
    older=GATED_IN_MEMORY,
    aliases=DINOV2_SWIGLU.aliases,
    activations=DINOV2_SWIGLU.activations,
)

TOWER = "encoder.layers.{i}"
TOWER_BLOCK = weight_and_bias(
    {
        "blocks.{i}.attention.norm": f"{TOWER}.layer_norm1",
        "blocks.{i}.attention.layer.qkv": tuple(f"{TOWER}.self_attn.{part}_proj" for part in "qkv"),
        "blocks.{i}.attention.layer.output": f"{TOWER}.self_attn.out_proj",
        "blocks.{i}.mlp.norm": f"{TOWER}.layer_norm2",
        "blocks.{i}.mlp.layer.expand": f"{TOWER}.mlp.fc1",
        "blocks.{i}.mlp.layer.contract": f"{TOWER}.mlp.fc2",
        "norm": "post_layernorm",
    }
)
TEXT = (r"text_model\..*", r"text_projection\..*", r"logit_(scale|bias)", r"(vision_model\.)?embeddings\.position_ids")
"""What CLIP and SigLIP hold beside the model of images."""
TOWERS = words("logit_scale_init_value projection_dim text_config text_config_dict vision_config vision_config_dict")
"""What ``config.json`` says of a model of images and texts together."""
TOWER_DESCRIBED = {**DESCRIBED, "mlp_dim": "intermediate_size", "attention_dropout": "attention_dropout"}

SIGLIP = Layout(
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
    needs=(*VIT.needs, "pool.query"),
    ignored=TEXT,
    fields={"norm_eps": 1e-6, "mlp": "gelu-tanh"},
    described=TOWER_DESCRIBED,
    harmless=TOWERS,
    fixed={"vision_use_head": (True,)},
    activations=ACTIVATIONS,
    model_types=("siglip_vision_model", "siglip"),
    classes=("", "SiglipVisionModel"),
    colours=Colours(fit="squash"),
    interpolation=BICUBIC,
)

CLIP = Layout(
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
    described=TOWER_DESCRIBED,
    harmless=TOWERS,
    activations=ACTIVATIONS,
    model_types=("clip_vision_model", "clip"),
    extra=lambda config: {"projection_dim": config.num_classes} if config.num_classes else {},
    classes=("CLIPVisionModelWithProjection", "CLIPVisionModel"),
    colours=CLIP_COLOURS,
    interpolation=BICUBIC,
)
