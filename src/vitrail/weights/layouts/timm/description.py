"""Writing timm's ``config.json``: a model name of timm's registry and its constructor arguments."""

from collections.abc import Callable, Mapping
from typing import Any

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.models.configs.base import ImageConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.empty import empty_model
from vitrail.weights.keys import ratio_of
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.timm.arguments import ACTIVATIONS, TURNS

BASES = {
    (False, "layer", 1e-6, "pre"): "vit_base_patch16_224",
    (False, "layer", 1e-5, "pre"): "vit_base_patch16_clip_224",
    (False, "layer", 1e-6, "residual-post"): "vit_base_patch16_rpn_224",
    (False, "rms", 1e-6, "pre"): "test_vit4",
    (True, "layer", 1e-6, "pre"): "vit_giant_patch14_dinov2",
    (True, "rms", 1e-5, "pre"): "aimv2_large_patch14_224",
}
"""Names in timm's registry by properties that ``config.json`` has no argument for: gated MLP, norm, epsilon, norm position."""
EVA_BASES = {
    ("timm-eva", 1e-6): "eva02_tiny_patch14_224",
    ("timm-dinov3", 1e-5): "vit_small_patch16_dinov3",
    ("timm-rope", 1e-6): "vit_small_patch16_rope_224",
    ("timm-rope", 1e-5): "vit_pe_core_small_patch16_384",
}
"""Names of models with rotary position embeddings, by layout and epsilon."""
HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224", (2, 2, 2, 2): "vit_small_r26_s32_224", (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}  # fmt: skip
"""Names of hybrids, by the depths of their ResNet."""
FIRST = ("embedding.resnet.root.0.weight", "features.root.0.weight", "stages.0.embedding.projection.weight",
         "embedding.projection.weight")  # fmt: skip
"""Possible names of the first convolution in our models, in the order of search."""
HEADS = ("head.linear.weight", "head_distillation.linear.weight")
"""Names of the last layers; only distilled models have the second."""


def inexpressible(what: str) -> ConfigError:
    """Return the error for a model that timm cannot build."""
    return ConfigError(f"timm has no {what}", where="--layout", hint="give another layout")


def named(name: str, config: Any, arguments: Mapping[str, Any], width: int | None = None, **more: Any) -> dict[str, Any]:
    """Return ``config.json`` for a model of timm's registry; ``width`` is the width of its features, by default ``dim``."""
    features = config.dim if width is None else width
    return {"architecture": name, "num_classes": config.num_classes, "num_features": features, **more, "model_args": arguments}


def _sizes(config: ViTConfig) -> dict[str, Any]:
    if config.head_dim is not None and config.head_dim * config.heads != config.dim:
        raise inexpressible("heads · head_dim other than dim")
    return {
        "img_size": list(config.image_size),
        "patch_size": list(config.patch_size),
        "in_chans": config.channels,
        "num_classes": config.num_classes,
        "embed_dim": config.dim,
        "depth": config.depth,
        "num_heads": config.heads,
        "qkv_bias": config.qkv_bias,
        "init_values": config.layer_scale,
    }


def _pooling(config: ViTConfig) -> str:
    names = {"class": "token", "mean": "avg", "attention": "map", "attention-patches": "map"}
    if config.pool not in names:
        raise inexpressible(f"pooling {config.pool}")
    return names[config.pool]


def describe_vit(config: ViTConfig) -> dict[str, Any]:
    """Return ``config.json`` for timm's VisionTransformer: a name of its registry, and its arguments."""
    arguments = _sizes(config)
    name = BASES.get((config.mlp == "swiglu", config.norm_kind, config.norm_eps, config.norm))
    if config.embedding == "resnet":
        stride = 4 * 2 ** max(0, len(config.resnet_depths) - 1)
        arguments["patch_size"] = [side // stride for side in config.patch_size]
        if set(arguments["patch_size"]) == {1 if config.resnet_depths else 8}:
            del arguments["patch_size"]  # the name implies it, in positions of the feature map; ours is in pixels
        root = (config.resnet_width, config.resnet_root, config.resnet_block)
        usual = root == (64, "imagenet", "bottleneck") and name == "vit_base_patch16_224"
        name = HYBRIDS.get(config.resnet_depths) if usual else None
    if config.distillation_token:
        if name != "vit_base_patch16_224" or config.registers or config.final_norm != "tokens" or config.embedding_norm != "none":
            raise inexpressible("distillation token with these norms, registers or this MLP")
        arguments |= {"act_layer": ACTIVATIONS[config.mlp], "mlp_ratio": ratio_of(config.mlp_dim, config.dim)}
        return named("deit_base_distilled_patch16_224", config, arguments)
    if name is None:
        raise inexpressible("model with these norms, this epsilon, this MLP or this ResNet")
    if config.norm == "residual-post" and config.layer_scale:
        raise inexpressible("LayerScale with residual post-norm")
    embedded = config.embedding_norm == "projected"
    arguments["mlp_ratio"] = ratio_of(config.mlp_dim * (2 if config.mlp == "swiglu" else 1), config.dim)  # a gate counts, too
    if name == BASES[True, "rms", 1e-5, "pre"]:  # it has an embedding norm already; no norm name of timm has its epsilon
        arguments |= {"mlp_ratio": ratio_of(config.mlp_dim, config.dim)} | ({} if embedded else {"embed_norm_layer": None})
    elif embedded and config.norm_eps != 1e-6:
        raise inexpressible(f"norm of projected patches with epsilon {config.norm_eps:g}")
    elif embedded:
        arguments["embed_norm_layer"] = f"{config.norm_kind}norm"
    pool = _pooling(config)
    if pool == "map" and (config.mlp == "swiglu" or config.pool_heads or config.pool_mlp_dim):
        raise inexpressible("attention pooling with pool_heads, pool_mlp_dim or SwiGLU")
    arguments |= {
        "act_layer": ACTIVATIONS[config.mlp],
        "qk_norm": config.qk_norm,
        "scale_attn_norm": config.attention_norm,
        "scale_mlp_norm": config.mlp_norm,
        "proj_bias": config.linear_bias,
        "pre_norm": config.embedding_norm == "tokens",
        "class_token": config.has_class_token,
        "reg_tokens": config.registers,
        "no_embed_class": not config.class_position,
        "global_pool": pool,
        "pool_include_prefix": config.pool == "attention",
        "fc_norm": config.final_norm == "pooled",
        "final_norm": config.final_norm != "none",
    }
    return named(name, config, arguments)


def describe_eva(layout: str) -> Callable[[ViTConfig], dict[str, Any]]:
    """Return a function that writes ``config.json`` for timm's Eva, which has rotary position embeddings."""

    def describe(config: ViTConfig) -> dict[str, Any]:
        name = EVA_BASES.get((layout, config.norm_eps))
        if name is None or not config.is_rotary or config.norm_kind != "layer" or not config.linear_bias:
            raise inexpressible("model with these positions, norms and biases")
        kind, order, half = TURNS[layout]
        if (config.rotary_coordinates == "unit") != (kind == "dinov3") or config.norm not in ("pre", "residual-post"):
            raise inexpressible("model with these positions and norms")
        pool = _pooling(config)
        if config.pool == "attention-patches" or (pool == "map" and config.mlp not in ("gelu", "swiglu")):
            raise inexpressible(f"pooling {config.pool}")
        if config.mlp not in ("gelu", "swiglu") or config.embedding_norm == "projected":
            raise inexpressible(f"Eva with MLP {config.mlp} or with a norm of projected patches")
        arguments = _sizes(config) | {
            "mlp_ratio": ratio_of(config.mlp_dim, config.dim),
            "attn_type": "rope",
            "qkv_fused": True,
            "qk_norm": config.qk_norm,
            "swiglu_mlp": config.mlp == "swiglu",
            "swiglu_align_to": 0,
            "scale_mlp": config.mlp_norm,
            "scale_attn_inner": config.attention_norm,
            "class_token": config.has_class_token,
            "num_reg_tokens": config.registers,
            "no_embed_class": not config.class_position,
            "use_abs_pos_emb": config.position != "rotary",
            "use_rot_pos_emb": True,
            "rope_type": kind,
            "rope_grid_indexing": order,
            "rope_rotate_half": half,
            "rope_temperature": config.rotary_base,
            "rope_grid_offset": config.rotary_offset,
            "ref_feat_shape": None if config.rotary_grid is None else list(config.rotary_grid),
            "use_post_norm": config.norm == "residual-post",
            "use_pre_transformer_norm": config.embedding_norm == "tokens",
            "use_post_transformer_norm": config.final_norm == "tokens",
            "use_fc_norm": config.final_norm == "pooled",
            "global_pool": pool,
            "attn_pool_num_heads": config.pool_heads or config.heads,
            "attn_pool_mlp_ratio": ratio_of(config.pool_mlp_dim or config.mlp_dim, config.dim),
            "dynamic_img_size": False,
        }
        if config.norm == "residual-post" and (config.layer_scale or config.qk_norm):
            raise inexpressible("LayerScale or qk_norm with residual post-norm")
        return named(name, config, arguments)

    return describe


def describe_beit(config: ViTConfig) -> dict[str, Any]:
    """Return ``config.json`` for timm's Beit, which has relative positions."""
    usual = (config.norm_kind, config.norm_eps, config.norm, config.linear_bias) == ("layer", 1e-6, "pre", True)
    if not usual or config.mlp != "gelu" or config.attention_norm or config.registers or config.embedding_norm != "none":
        raise inexpressible("BEiT with these norms, registers or this MLP")
    arguments = _sizes(config) | {
        "mlp_ratio": ratio_of(config.mlp_dim, config.dim),
        "scale_mlp": config.mlp_norm,
        "use_abs_pos_emb": False,
        "use_rel_pos_bias": True,
        "global_pool": _pooling(config),
        "use_fc_norm": config.final_norm == "pooled",
    }
    return named("beit_base_patch16_224", config, arguments)


def timm_data(layout: Layout, config: ImageConfig, labels: list[str], preparation: Preparation) -> dict[str, Any]:
    """Return the entries of timm's ``config.json`` for labels, preparation and the layers that fine-tuning replaces."""
    return {
        "label_names": labels,
        "pretrained_cfg": {
            "input_size": [config.channels, *config.image_size],
            "num_classes": config.num_classes,
            "mean": preparation.mean,
            "std": preparation.std,
            "crop_pct": preparation.crop_ratio,
            "crop_mode": "squash" if preparation.fit == "squash" else "center",
            "interpolation": preparation.resampling,
            **_made_anew(layout, config),
        },
    }


def _made_anew(layout: Layout, config: ImageConfig) -> dict[str, Any]:
    """Return timm's names of the classifiers and of the first convolution, which timm replaces for other classes or channels."""
    parameters = empty_model(config).state_dict()
    first = next(name for name in FIRST if name in parameters)
    heads = HEADS if getattr(config, "distillation_token", False) else HEADS[:1]
    classifiers = [_module(layout, name, config) for name in heads]
    return {
        "first_conv": _module(layout, first, config),
        "classifier": classifiers if len(classifiers) > 1 else classifiers[0],
    }


def _module(layout: Layout, ours: str, config: ImageConfig) -> str:
    place = layout.place(ours, config)
    if place is None:
        raise inexpressible(f"key for {ours}")
    return place[1][0].removesuffix(".weight")
