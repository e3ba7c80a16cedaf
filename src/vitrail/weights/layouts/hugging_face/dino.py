"""The layouts of transformers' DINOv2, with and without registers, and DINOv3."""

from dataclasses import replace

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.positions.interpolation import ANTIALIASED
from vitrail.weights.keys import Joined, Key, block, weight_and_bias, words
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.hugging_face.vit import (
    ACTIVATIONS,
    BICUBIC,
    BLOCK,
    DEFAULTS,
    DESCRIBED,
    EMBEDDINGS,
    IN_MEMORY,
    OUTPUT,
    QKV,
    VIT,
    WITH_DROPOUT,
)
from vitrail.weights.layouts.vit.keys import WithoutKeyBias, not_plain, not_square, own_heads
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import IMAGENET


def _dinov2(config: ViTConfig) -> dict[str, object]:
    """Return the integer ratio that gives the MLP's width; with SwiGLU the width is 2/3 of this, rounded up to multiples of 8."""
    gated = config.mlp == "swiglu"

    def width(ratio: int) -> int:
        return (config.dim * ratio * 2 // 3 + 7) // 8 * 8 if gated else config.dim * ratio

    ratio = next((ratio for ratio in range(1, 17) if width(ratio) == config.mlp_dim), None)
    if ratio is None:
        what = f"transformers' Dinov2 cannot have an mlp_dim of {config.mlp_dim} with a dim of {config.dim}"
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
        **block(BLOCK, "norm1", QKV, OUTPUT, "norm2", "mlp.fc1", "mlp.fc2"),
        **weight_and_bias({"norm": "layernorm"}),
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
DINOV2_REGISTERS = replace(
    DINOV2,
    name="dinov2-registers",
    about="transformers' Dinov2WithRegisters",
    prefix="dinov2_with_registers.",
    keys={**DINOV2.keys, "registers": Key("embeddings.register_tokens", ndim=3)},
    needs=("registers", *DINOV2.needs),
    ignored=(r"(dinov2_with_registers\.)?embeddings\.mask_token",),
    described={**DINOV2.described, "registers": "num_register_tokens"},
    lacks=lambda config: not_plain(config) or not_square(config),  # transformers reads every position table as a square
    model_types=("dinov2_with_registers",),
    classes=("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersModel"),
    interpolation=ANTIALIASED,
)


def _swiglu(layout: Layout) -> Layout:
    return replace(
        layout,
        name=f"{layout.name}-swiglu",
        about=f"{layout.about} with SwiGLU",
        keys={**layout.keys, **GATED},
        older=GATED_IN_MEMORY,
        aliases={**IN_MEMORY, r"\.mlp\.down_proj\.": ".mlp.weights_out."},
        activations={"swiglu": "gelu"},
    )


DINOV2_SWIGLU, DINOV2_REGISTERS_SWIGLU = _swiglu(DINOV2), _swiglu(DINOV2_REGISTERS)

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
        **block(LAYER, "norm1", "", "attention.o_proj", "norm2", "mlp.up_proj", "mlp.down_proj"),
        **weight_and_bias({"embedding.projection": "embeddings.patch_embeddings", "norm": "norm"}),
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
