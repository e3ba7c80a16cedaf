"""Hugging Face transformers' models of vision (https://github.com/huggingface/transformers)."""

from dataclasses import replace

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.interpolation import ANTIALIASED, Interpolation
from vitrail.weights.layout import CLIP_COLOURS, IMAGENET, Colours, Joined, Key, weight_and_bias, words
from vitrail.weights.layouts.vit_keys import Flat, WithoutKeyBias, not_plain, not_plain_or_no_bias, not_square, own_heads, thirds
from vitrail.weights.layouts.vit_reading import ViTLayout

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
DEFAULTS = {"image_size": 224, "num_attention_heads": 12}
"""What most of transformers' configurations mean where a ``config.json`` leaves it out and the weights do not tell."""
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

VIT = ViTLayout(
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
    defaults=DEFAULTS,
    described={**WITH_DROPOUT, "mlp_dim": "intermediate_size", "qkv_bias": "qkv_bias"},
    harmless=words("pooler_act pooler_output_size"),
    pools=("class",),
    activations=ACTIVATIONS,
    needs=("position.embedding", "class_token"),
    lacks=not_plain,
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
    lacks=lambda config: not_plain(config) or not_square(config),
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

MSN = replace(
    VIT,
    name="vit-msn",
    about="transformers' ViTMSN",
    prefix="",
    aliases={r"^vit\.": "", **VIT.aliases},  # transformers 5 writes some keys with it and some without
    ignored=(r"embeddings\.mask_token",),
    fields={"norm_eps": 1e-6, "pool": "class"},
    harmless=frozenset(),
    model_types=("vit_msn",),
    classes=("", ""),
)

IJEPA = replace(
    VIT,
    needs=("position.embedding",),
    name="ijepa",
    about="transformers' I-JEPA",
    prefix="ijepa.",
    keys={ours: key for ours, key in VIT.keys.items() if ours != "class_token"},
    ignored=(r"(ijepa\.)?embeddings\.mask_token",),
    fields={"norm_eps": 1e-12, "pool": "mean"},
    pools=("mean",),
    model_types=("ijepa",),
    classes=("IJepaForImageClassification", "IJepaModel"),
)

SHARED = "encoder.relative_position_bias"
OWN = f"{BLOCK}.attention.attention.relative_position_bias"


def _beit(config: ViTConfig) -> dict[str, object]:
    """Which positions there are, and what is read; the width of a patch is one number to transformers.

    Relative positions are what a BEiT is written for; without them its images would be resized in another way than ours.
    """
    if config.patch_size[0] != config.patch_size[1] or not config.is_relative:
        what = "transformers' BEiT is written with square patches and relative positions alone"
        raise ConfigError(what, where="--layout", hint="give another layout")
    return {
        "use_mean_pooling": config.final_norm == "pooled",
        "use_relative_position_bias": config.position == "relative-per-block",
        "use_shared_relative_position_bias": config.position == "relative",
        "use_absolute_position_embeddings": False,
        "layer_scale_init_value": config.layer_scale or 0.0,
    }


BEIT = replace(
    VIT,
    name="beit",
    about="transformers' BEiT",
    prefix="beit.",
    keys={
        **{ours: key for ours, key in VIT.keys.items() if not ours.startswith("norm.")},
        "blocks.{i}.attention.layer.qkv.bias": WithoutKeyBias(
            f"{BLOCK}.attention.attention.query.bias", rest=(f"{BLOCK}.attention.attention.value.bias",), exact=True
        ),
        "blocks.{i}.attention.scale.gamma": Key(f"{BLOCK}.lambda_1"),
        "blocks.{i}.mlp.scale.gamma": Key(f"{BLOCK}.lambda_2"),
        "relative.table": Key(f"{SHARED}.relative_position_bias_table"),
        "relative.tables.{i}": Key(f"{OWN}.relative_position_bias_table"),
        **{
            f"norm.{part}": (
                Key(
                    f"layernorm.{part}",
                    when=lambda config: config.final_norm == "tokens",
                    tells={"final_norm": "tokens", "pool": "class"},
                ),
                Key(
                    f"pooler.layernorm.{part}",
                    when=lambda config: config.final_norm == "pooled",
                    tells={"final_norm": "pooled", "pool": "mean"},
                ),
            )
            for part in ("weight", "bias")
        },
    },
    aliases={
        r"^shared_position_bias\.": f"{SHARED}.",
        r"^layers\.(\d+)\.relative_position_bias\.": OWN.replace("{i}", r"\1") + ".",
        **VIT.aliases,
    },
    needs=("class_token",),
    ignored=(r"(beit\.)?embeddings\.mask_token", r".*relative_position_index"),
    fields={"norm_eps": 1e-12, "class_token": True},
    described={**WITH_DROPOUT, "mlp_dim": "intermediate_size", "stochastic_depth": "drop_path_rate"},
    harmless=words(
        """
        add_fpn auxiliary_channels auxiliary_concat_input auxiliary_loss_weight auxiliary_num_convs layer_scale_init_value
        pool_scales reshape_hidden_states segmentation_indices use_absolute_position_embeddings use_auxiliary_head use_mask_token
        use_mean_pooling use_relative_position_bias use_shared_relative_position_bias vocab_size
        """
    ),
    pools=("class", "mean"),
    extra=_beit,
    model_types=("beit",),
    classes=("BeitForImageClassification", "BeitModel"),
    colours=Colours(),
    interpolation=Interpolation("bilinear", antialias=False),
)

DATA2VEC = replace(
    BEIT,
    name="data2vec-vision",
    about="transformers' data2vec",
    prefix="data2vec_vision.",
    ignored=(r"(data2vec_vision\.)?embeddings\.mask_token", r".*relative_position_index"),
    model_types=("data2vec-vision",),
    classes=("Data2VecVisionForImageClassification", "Data2VecVisionModel"),
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


DINOV2 = ViTLayout(
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
    defaults=DEFAULTS,
    described={**WITH_DROPOUT, "qkv_bias": "qkv_bias", "layer_scale": "layerscale_value", "stochastic_depth": "drop_path_rate"},
    harmless=words("apply_layernorm intermediate_size mlp_ratio reshape_hidden_states use_mask_token use_swiglu_ffn"),
    pools=("class+mean",),
    activations=ACTIVATIONS,
    extra=_dinov2,
    lacks=not_plain,
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

LAYER = "layer.{i}"
DINOV3 = ViTLayout(
    name="dinov3",
    about="transformers' DINOv3ViT",
    keys={
        "class_token": Key("embeddings.cls_token", ndim=3),
        "registers": Key("embeddings.register_tokens", ndim=3),
        "blocks.{i}.attention.layer.qkv.weight": Joined(
            f"{LAYER}.attention.q_proj.weight", rest=(f"{LAYER}.attention.k_proj.weight", f"{LAYER}.attention.v_proj.weight")
        ),
        "blocks.{i}.attention.layer.qkv.bias": WithoutKeyBias(
            f"{LAYER}.attention.q_proj.bias", rest=(f"{LAYER}.attention.v_proj.bias",), interleaved=False
        ),
        "blocks.{i}.attention.scale.gamma": Key(f"{LAYER}.layer_scale1.lambda1"),
        "blocks.{i}.mlp.scale.gamma": Key(f"{LAYER}.layer_scale2.lambda1"),
        **weight_and_bias(
            {
                "embedding.projection": "embeddings.patch_embeddings",
                "blocks.{i}.attention.norm": f"{LAYER}.norm1",
                "blocks.{i}.attention.layer.output": f"{LAYER}.attention.o_proj",
                "blocks.{i}.mlp.norm": f"{LAYER}.norm2",
                "blocks.{i}.mlp.layer.expand": f"{LAYER}.mlp.up_proj",
                "blocks.{i}.mlp.layer.contract": f"{LAYER}.mlp.down_proj",
                "norm": "norm",
            }
        ),
    },
    aliases={r"^model\.layer\.": "layer."},  # in memory
    needs=("class_token", "blocks.0.attention.scale.gamma"),
    ignored=(r"embeddings\.mask_token",),
    fields={"norm_eps": 1e-5, "pool": "class", "position": "rotary", "rotary_coordinates": "unit"},
    defaults={"image_size": 224, "num_attention_heads": 6},
    described={
        **DESCRIBED,
        "mlp_dim": "intermediate_size",
        "attention_dropout": "attention_dropout",
        "stochastic_depth": "drop_path_rate",
        "layer_scale": "layerscale_value",
        "registers": "num_register_tokens",
        "rotary_base": "rope_theta",
    },
    harmless=words(
        """
        apply_layernorm mlp_bias pos_embed_jitter pos_embed_rescale pos_embed_shift proj_bias query_bias reshape_hidden_states
        return_class_token value_bias
        """
    ),
    fixed={"use_gated_mlp": (False,), "key_bias": (False,)},
    activations=ACTIVATIONS,
    lacks=own_heads,
    model_types=("dinov3_vit",),
    extra=lambda config: {
        "use_gated_mlp": config.mlp == "swiglu",
        "query_bias": config.qkv_bias,
        "value_bias": config.qkv_bias,
        "key_bias": False,
        "proj_bias": config.linear_bias,
        "mlp_bias": config.linear_bias,
    },
    classes=("", "DINOv3ViTModel"),
    colours=replace(IMAGENET, resampling="bilinear", fit="squash", crop_ratio=1.0),
    empty={"registers": "embeddings.register_tokens"},
)

DINOV3_GATED = replace(
    DINOV3,
    name="dinov3-gated",
    about="transformers' DINOv3ViT with a gated MLP",
    keys={
        **DINOV3.keys,
        **weight_and_bias({"blocks.{i}.mlp.layer.expand": (f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj")}),
    },
    fixed={**DINOV3.fixed, "use_gated_mlp": (True,)},
    activations={"swiglu": "silu"},
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
TOWERS = words(
    """
    direct_kd dropout logit_scale_init_value num_layers projection_dim text_config text_config_dict text_model_name vision_config
    vision_config_dict vision_model_name
    """
)
"""What ``config.json`` says of a model of images and texts together."""
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
    fixed={"vision_use_head": (True,)},
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
    harmless=TOWERS,
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
    """It knows the number of its positions, which form a square of square patches."""
    if len(set(config.grid)) > 1 or len(set(config.patch_size)) > 1 or config.crop_remainder:
        what = "transformers' Siglip2VisionModel has no positions and patches that are not square"
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

AIMV2 = ViTLayout(
    name="aimv2",
    about="transformers' Aimv2VisionModel",
    prefix="vision_model.",
    keys={
        "position.embedding": Key("embeddings.position_embedding.weight"),
        **weight_and_bias(
            {
                "embedding.projection": "embeddings.patch_embed",
                "blocks.{i}.attention.layer.qkv": tuple(f"{TOWER}.attention.{part}_proj" for part in "qkv"),
                "blocks.{i}.attention.layer.output": f"{TOWER}.attention.out_proj",
                "blocks.{i}.mlp.layer.expand": (f"{TOWER}.ffn.gate_proj", f"{TOWER}.ffn.up_proj"),
                "blocks.{i}.mlp.layer.contract": f"{TOWER}.ffn.down_proj",
            }
        ),
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
