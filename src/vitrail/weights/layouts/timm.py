"""timm's Vision Transformers (https://github.com/huggingface/pytorch-image-models), BEiT, EVA and DINOv3 among them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vitrail.data.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.models.configs.vit import ViTConfig
from vitrail.settings import brief
from vitrail.weights.layout import CLIP_COLOURS, IMAGENET, Colours, Joined, Key, Layout, weight_and_bias, words
from vitrail.weights.layouts.timm_models import MODELS
from vitrail.weights.layouts.vit_keys import Turned, WithoutKeyBias, not_plain_or_no_bias
from vitrail.weights.layouts.vit_reading import ViTLayout

ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_tanh", "quick-gelu": "quick_gelu", "swiglu": "silu"}
STAGE = "patch_embed.backbone.stages.{s}.blocks.{j}"

# What the arguments of timm's constructors mean, one by one. What stands in none of these is refused.

HARMLESS = words(
    """
    attn_drop_rate attn_type drop_path_rate drop_rate dynamic_img_pad dynamic_img_size fix_init head_init_scale patch_drop_rate
    pos_drop_rate proj_drop_rate qkv_fused rope_jitter_coords rope_rescale_coords rope_shift_coords swiglu_align_to weight_init
    """
)
"""They change nothing of what a trained model answers to images of its size."""
SHOWN = words(
    """
    attn_only_layer_scale attn_pool_mlp_ratio class_token fc_norm final_norm init_values mlp_ratio no_embed_class num_reg_tokens
    pre_norm proj_bias qk_norm qkv_bias reg_tokens scale_attn_inner scale_attn_norm scale_mlp scale_mlp_norm swiglu_mlp
    use_abs_pos_emb use_post_transformer_norm use_pre_transformer_norm use_rel_pos_bias use_shared_rel_pos_bias
    """
)
"""They show in keys and shapes."""
SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
    "embed_dim": "dim", "depth": "depth", "num_heads": "heads", "attn_pool_num_heads": "pool_heads",
    "rope_temperature": "rotary_base", "rope_grid_offset": "rotary_offset", "ref_feat_shape": "rotary_grid",
}  # fmt: skip
"""Fields of ours that mean the same."""
FIXED: dict[str, tuple[Any, ...]] = {
    "attn_layer": ("", "attn"), "num_kv_heads": (None,), "pos_embed": ("learn",), "rope_mrope_section": (None,)
}  # fmt: skip
"""Others that are known with these values alone."""
MEANT = words(
    """
    act_layer block_fn embed_norm_layer global_pool norm_layer pool_include_prefix rope_grid_indexing rope_rotate_half rope_type
    use_fc_norm use_post_norm use_rot_pos_emb
    """
)
"""What `_fields` understands."""
NORMS = {"layernorm": ("layer", 1e-6), "rmsnorm": ("rms", 1e-6)}
"""timm's names of norms, with the epsilon that they have there."""
TURNS = {
    "timm-dinov3": ("dinov3", "ij", True),
    "timm-rope": ("cat", "xy", False),
    "timm-eva": ("cat", "ij", False),
}
"""By layout: the type of rotary positions, what comes first, and whether the two numbers of a plane are half a head apart."""


def _refused(what: str, hint: str = "give a model whose parts are known") -> ModelFileError:
    return ModelFileError(f"{what} is not known here", where="config.json", hint=hint)


def _reader(layout: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Reads timm's ``config.json`` for one of its layouts."""

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        name = values.get("architecture")
        if name is None:
            return {}
        if name not in MODELS:
            error = unknown("architecture", str(name), list(MODELS))
            raise ModelFileError(error.what, where="config.json", hint=error.hint or "give a model that is known")
        family, arguments = MODELS[name]
        if layout != family:
            raise _refused(f"{name} as {layout}", f"it is {family}")
        return _fields({**arguments, **own_arguments(values)}, layout)

    return read


def own_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """What ``config.json`` says beside the name of the architecture."""
    given = values.get("model_args")
    arguments = dict(given) if isinstance(given, dict) else {}
    prepared = values.get("pretrained_cfg")
    size = prepared.get("input_size") if isinstance(prepared, dict) else None
    if isinstance(size, list) and len(size) == 3:
        arguments = {"img_size": size[1:], "in_chans": size[0], **arguments}
    return {**{name: values[name] for name in ("num_classes", "global_pool") if values.get(name) is not None}, **arguments}


def _fields(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Fields of our configuration that arguments of a constructor of timm's mean."""
    for name, value in arguments.items():
        if name not in HARMLESS | SHOWN | MEANT | SAME.keys() | FIXED.keys():
            raise _refused(f"{name}={brief(value)}")
        if name in FIXED and value not in FIXED[name]:
            raise _refused(f"{name}={brief(value)}")
    told = {SAME[name]: value for name, value in arguments.items() if name in SAME and value is not None}
    fields = {name: ViTConfig.read_field(name, value, where="config.json") for name, value in told.items()}
    fields |= _norms(arguments)
    act = arguments.get("act_layer")
    if act is not None:
        names = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
        if act not in names:
            raise _refused(f"act_layer={brief(act)}", f"known: {', '.join(names)}")
        fields["mlp"] = names[act]
    fields |= _pool(arguments, layout)
    return fields | _rotary(arguments, layout)


def _norms(arguments: Mapping[str, Any]) -> dict[str, Any]:
    norm = _norm(arguments.get("norm_layer"))
    embedded = arguments.get("embed_norm_layer")
    if embedded is not None and _norm(embedded) != norm:
        raise _refused("embed_norm_layer other than norm_layer")
    block = arguments.get("block_fn", "Block")
    after = block == "ResPostBlock" or arguments.get("use_post_norm", False)
    if block not in ("Block", "ResPostBlock"):
        raise _refused(f"block_fn={brief(block)}")
    return {"norm_kind": norm[0], "norm_eps": norm[1], "norm": "residual-post" if after else "pre"}


def _norm(value: Any) -> tuple[str, float]:
    """Kind and epsilon of a norm by timm's name; in our table of models the epsilon stands beside it."""
    if isinstance(value, tuple):
        return NORMS[value[0]][0], value[1]
    if value is None:
        return NORMS["layernorm"]
    if value not in NORMS:
        raise _refused(f"norm_layer={brief(value)}", f"known: {', '.join(NORMS)}")
    return NORMS[value]


def _pool(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Pooling and the place of the last norm, by which timm's three classes differ."""
    plain = layout == "timm"
    kind = arguments.get("global_pool", "token" if plain else "avg")
    all_tokens = arguments.get("pool_include_prefix", False) or not plain
    pools = {"token": "class", "avg": "mean", "map": "attention" if all_tokens else "attention-patches"}
    if kind not in pools:
        raise _refused(f"global_pool={brief(kind)}", f"known: {', '.join(pools)}")
    if arguments.get("pool_include_prefix") and kind == "avg":
        raise _refused("pool_include_prefix with global_pool='avg'")
    pooled = arguments.get("use_fc_norm", arguments.get("fc_norm"))
    pooled = kind == "avg" if pooled is None else bool(pooled)
    tokens = arguments.get("use_post_transformer_norm")
    tokens = not pooled if tokens is None else bool(tokens)
    if not arguments.get("final_norm", True):
        pooled = tokens = False
    if pooled and tokens:
        raise _refused("a last norm both before and behind the pooling")
    return {"pool": pools[kind], "final_norm": "pooled" if pooled else "tokens" if tokens else "none"}


def _rotary(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Rotary positions; whether positions are learned as well shows in the weights."""
    if not arguments.get("use_rot_pos_emb", False):
        return {"position": "learned-1d"}
    if layout not in TURNS:
        raise _refused(f"use_rot_pos_emb as {layout}")
    kind, order, half = TURNS[layout]
    given = {"rope_type": kind, "rope_grid_indexing": order, "rope_rotate_half": half}
    for name, value in given.items():
        if arguments.get(name, value) != value:
            raise _refused(f"{name}={brief(arguments[name])}")
    fields: dict[str, Any] = {"position": "rotary", "rotary_coordinates": "unit" if kind == "dinov3" else "patches"}
    if kind == "dinov3" and arguments.get("rope_grid_offset", 0):
        raise _refused("rope_grid_offset with rope_type='dinov3'")
    return fields | ({} if "rope_temperature" in arguments else {"rotary_base": 10_000.0})


# What is written

BASES = {
    (False, "layer", 1e-6, "pre"): "vit_base_patch16_224",
    (False, "layer", 1e-5, "pre"): "vit_base_patch16_clip_224",
    (False, "layer", 1e-6, "residual-post"): "vit_base_patch16_rpn_224",
    (False, "rms", 1e-6, "pre"): "test_vit4",
    (True, "layer", 1e-6, "pre"): "vit_giant_patch14_dinov2",
    (True, "rms", 1e-5, "pre"): "aimv2_large_patch14_224",
}
"""Names of timm's registry by what no argument in a ``config.json`` can say: gated MLP, norm, epsilon and place of the norm."""
EVA_BASES = {
    ("timm-eva", 1e-6): "eva02_tiny_patch14_224",
    ("timm-dinov3", 1e-5): "vit_small_patch16_dinov3",
    ("timm-rope", 1e-6): "vit_small_patch16_rope_224",
    ("timm-rope", 1e-5): "vit_pe_core_small_patch16_384",
}
HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224", (2, 2, 2, 2): "vit_small_r26_s32_224", (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}  # fmt: skip
"""The same of hybrids, by the depths of their ResNet."""


def _inexpressible(what: str) -> ConfigError:
    return ConfigError(f"timm has no {what}", where="--layout", hint="give another layout")


def _architecture(name: str, config: ViTConfig, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"architecture": name, "num_classes": config.num_classes, "num_features": config.dim, "model_args": arguments}


def _sizes(config: ViTConfig) -> dict[str, Any]:
    """Arguments that all of timm's constructors have."""
    if config.head_dim is not None and config.head_dim * config.heads != config.dim:
        raise _inexpressible("heads of a width of their own")
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


def _ratio(width: int, config: ViTConfig) -> float:
    """So many times the width of a token, as timm makes a width of it: it rounds down."""
    ratio = width / config.dim
    return ratio if int(config.dim * ratio) == width else (width + 0.5) / config.dim


def _pooling(config: ViTConfig) -> str:
    """timm's name of the pooling."""
    names = {"class": "token", "mean": "avg", "attention": "map", "attention-patches": "map"}
    if config.pool not in names:
        raise _inexpressible(f"pooling {config.pool}")
    return names[config.pool]


def _describe(config: ViTConfig) -> dict[str, Any]:
    """A VisionTransformer of timm's: a name of its registry that has the right classes, and all that makes it this model."""
    arguments = _sizes(config)
    name = BASES.get((config.mlp == "swiglu", config.norm_kind, config.norm_eps, config.norm))
    if config.embedding == "resnet":
        stride = 4 * 2 ** max(0, len(config.resnet_depths) - 1)
        arguments["patch_size"] = [side // stride for side in config.patch_size]
        usual = (config.resnet_width, config.resnet_root, name) == (64, "imagenet", "vit_base_patch16_224")
        name = HYBRIDS.get(config.resnet_depths) if usual else None
    if config.distillation_token:
        if name != "vit_base_patch16_224" or config.registers or config.final_norm != "tokens" or config.embedding_norm != "none":
            raise _inexpressible("distillation token in such a model")
        arguments |= {"act_layer": ACTIVATIONS[config.mlp], "mlp_ratio": _ratio(config.mlp_dim, config)}
        return _architecture("deit_base_distilled_patch16_224", config, arguments)
    if name is None:
        raise _inexpressible("model with these norms, this epsilon, this MLP or this ResNet")
    embedded = config.embedding_norm == "projected"
    arguments["mlp_ratio"] = _ratio(config.mlp_dim * (2 if config.mlp == "swiglu" else 1), config)  # a gate counts, too
    if name == BASES[True, "rms", 1e-5, "pre"]:  # which has such a norm, and no name of a norm has its epsilon
        arguments |= {"mlp_ratio": _ratio(config.mlp_dim, config)} | ({} if embedded else {"embed_norm_layer": None})
    elif embedded and config.norm_eps != 1e-6:
        raise _inexpressible("norm of projected patches with this epsilon")
    elif embedded:
        arguments["embed_norm_layer"] = f"{config.norm_kind}norm"
    pool = _pooling(config)
    if pool == "map" and (config.mlp == "swiglu" or config.pool_heads or config.pool_mlp_dim):
        raise _inexpressible("attention pooling with heads or an MLP of its own")
    arguments |= {
        "act_layer": ACTIVATIONS[config.mlp],
        "qk_norm": config.qk_norm,
        "scale_attn_norm": config.attention_norm,
        "scale_mlp_norm": config.mlp_norm,
        "proj_bias": config.linear_bias,
        "pre_norm": config.embedding_norm == "tokens",
        "class_token": config.has_class_token,
        "reg_tokens": config.registers,
        "no_embed_class": False,
        "global_pool": pool,
        "pool_include_prefix": config.pool == "attention",
        "fc_norm": config.final_norm == "pooled",
        "final_norm": config.final_norm != "none",
    }
    return _architecture(name, config, arguments)


def _describe_eva(layout: str) -> Callable[[ViTConfig], dict[str, Any]]:
    """Describes an Eva of timm's, which has rotary positions."""

    def describe(config: ViTConfig) -> dict[str, Any]:
        name = EVA_BASES.get((layout, config.norm_eps))
        if name is None or not config.is_rotary or config.norm_kind != "layer" or not config.linear_bias:
            raise _inexpressible("model with such positions and norms")
        kind, order, half = TURNS[layout]
        if (config.rotary_coordinates == "unit") != (kind == "dinov3") or config.norm not in ("pre", "residual-post"):
            raise _inexpressible("model with such positions and norms")
        pool = _pooling(config)
        if config.pool == "attention-patches" or (pool == "map" and config.mlp not in ("gelu", "swiglu")):
            raise _inexpressible(f"pooling {config.pool}")
        if config.mlp not in ("gelu", "swiglu") or config.embedding_norm == "projected":
            raise _inexpressible(f"MLP {config.mlp} in such a model")
        arguments = _sizes(config) | {
            "mlp_ratio": _ratio(config.mlp_dim, config),
            "attn_type": "rope",
            "qkv_fused": True,
            "qk_norm": config.qk_norm,
            "swiglu_mlp": config.mlp == "swiglu",
            "swiglu_align_to": 0,
            "scale_mlp": config.mlp_norm,
            "scale_attn_inner": config.attention_norm,
            "class_token": config.has_class_token,
            "num_reg_tokens": config.registers,
            "no_embed_class": False,
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
            "attn_pool_mlp_ratio": _ratio(config.pool_mlp_dim or config.mlp_dim, config),
            "dynamic_img_size": False,
        }
        if config.norm == "residual-post" and (config.layer_scale or config.qk_norm):
            raise _inexpressible("LayerScale or norms of queries beside such norms")
        return _architecture(name, config, arguments)

    return describe


def _describe_beit(config: ViTConfig) -> dict[str, Any]:
    """A Beit of timm's, which has relative positions."""
    usual = (config.norm_kind, config.norm_eps, config.norm, config.linear_bias) == ("layer", 1e-6, "pre", True)
    if not usual or config.mlp != "gelu" or config.attention_norm or config.registers or config.embedding_norm != "none":
        raise _inexpressible("BEiT with such parts")
    arguments = _sizes(config) | {
        "mlp_ratio": _ratio(config.mlp_dim, config),
        "scale_mlp": config.mlp_norm,
        "use_abs_pos_emb": False,
        "use_rel_pos_bias": True,
        "global_pool": _pooling(config),
        "use_fc_norm": config.final_norm == "pooled",
    }
    return _architecture("beit_base_patch16_224", config, arguments)


def timm_data(config: ViTConfig, labels: list[str], preparation: Preparation) -> dict[str, Any]:
    """What timm's ``config.json`` says of labels and of images."""
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
        },
    }


# The tables

LAST_NORM = {
    f"norm.{part}": (
        Key(f"norm.{part}", when=lambda config: config.final_norm != "pooled", tells={"final_norm": "tokens"}),
        Key(f"fc_norm.{part}", when=lambda config: config.final_norm == "pooled", tells={"final_norm": "pooled"}),
    )
    for part in ("weight", "bias")
}
"""The last norm, before the pooling or behind it."""


def _expand(apart: Callable[[ViTConfig], bool]) -> dict[str, tuple[Key, ...]]:
    """The first layer of the MLP, whose gate is kept apart in some models."""
    gate, gated = ("blocks.{i}.mlp.fc1_g", "blocks.{i}.mlp.fc1_x")
    return {
        f"blocks.{{i}}.mlp.layer.expand.{part}": (
            Key(f"blocks.{{i}}.mlp.fc1.{part}", when=lambda config: not apart(config)),
            Joined(f"{gate}.{part}", rest=(f"{gated}.{part}",), when=apart),
        )
        for part in ("weight", "bias")
    }


TIMM = ViTLayout(
    name="timm",
    about="timm",
    family="timm",
    keys={
        **LAST_NORM,
        **_expand(lambda config: config.mlp == "swiglu" and config.norm_kind == "rms"),
        "embedding.projection.weight": Key("patch_embed.proj.weight"),
        "embedding.projection.bias": Key("patch_embed.proj.bias", when=lambda config: config.embedding_norm != "tokens"),
        "class_token": Key("cls_token", ndim=3),
        "distillation_token": Key("dist_token", ndim=3),
        "registers": Key("reg_token", ndim=3),
        "position.embedding": Key("pos_embed", ndim=3),
        "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.ls1.gamma"),
        "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.ls2.gamma"),
        "pool.query": Key("attn_pool.latent", ndim=3),
        **weight_and_bias(
            {
                "embedding.token_norm": "patch_embed.norm",
                "blocks.{i}.attention.norm": "blocks.{i}.norm1",
                "blocks.{i}.attention.layer.qkv": "blocks.{i}.attn.qkv",
                "blocks.{i}.attention.layer.query_norm": "blocks.{i}.attn.q_norm",
                "blocks.{i}.attention.layer.key_norm": "blocks.{i}.attn.k_norm",
                "blocks.{i}.attention.layer.output_norm": "blocks.{i}.attn.norm",
                "blocks.{i}.attention.layer.output": "blocks.{i}.attn.proj",
                "blocks.{i}.mlp.norm": "blocks.{i}.norm2",
                "blocks.{i}.mlp.layer.norm": "blocks.{i}.mlp.norm",
                "blocks.{i}.mlp.layer.contract": "blocks.{i}.mlp.fc2",
                "pool.attention.query": "attn_pool.q",
                "pool.attention.key_value": "attn_pool.kv",
                "pool.attention.output": "attn_pool.proj",
                "pool.mlp.norm": "attn_pool.norm",
                "pool.mlp.layer.expand": "attn_pool.mlp.fc1",
                "pool.mlp.layer.contract": "attn_pool.mlp.fc2",
                "head.linear": "head",
                "head_distillation.linear": "head_dist",
                "embedding.resnet.root.0": "patch_embed.backbone.stem.conv",
                "embedding.resnet.root.1": "patch_embed.backbone.stem.norm",
                "embedding.resnet.stages.{s}.{j}.shortcut.0": f"{STAGE}.downsample.conv",
                "embedding.resnet.stages.{s}.{j}.shortcut.1": f"{STAGE}.downsample.norm",
                "embedding.resnet.stages.{s}.{j}.reduce.0": f"{STAGE}.conv1",
                "embedding.resnet.stages.{s}.{j}.reduce.1": f"{STAGE}.norm1",
                "embedding.resnet.stages.{s}.{j}.spread.0": f"{STAGE}.conv2",
                "embedding.resnet.stages.{s}.{j}.spread.1": f"{STAGE}.norm2",
                "embedding.resnet.stages.{s}.{j}.expand.0": f"{STAGE}.conv3",
                "embedding.resnet.stages.{s}.{j}.expand.1": f"{STAGE}.norm3",
            }
        ),
    },
    older=weight_and_bias({"head.hidden": "pre_logits.fc"}),  # up to version 0.5
    aliases={r"^patch_embed\.backbone\.(?=conv|norm)": "patch_embed.backbone.stem."},  # a hybrid of a root alone
    fields={"norm_eps": 1e-6, "distillation_token": True},
    colours=Colours(crop_ratio=0.9),
    activations=ACTIVATIONS,
    read=_reader("timm"),
    describe=_describe,
    describe_data=timm_data,
    register_positions=True,
)

TIMM_CLIP = replace(
    TIMM,
    name="timm-clip",
    about="timm's CLIP",
    keys={name: key for name, key in TIMM.keys.items() if not name.startswith("pool.")}
    | weight_and_bias({"embedding_norm": "norm_pre"}),
    needs=(*TIMM.needs, "embedding_norm.weight"),
    fields={"norm_eps": 1e-5},
    colours=CLIP_COLOURS,
)


def _eva(name: str, about: str, *, interleaved: bool, columns_first: bool) -> Layout:
    """timm's Eva with the planes of its rotary positions in this order."""
    layer = "blocks.{i}.attention.layer"

    def turned(theirs: str, *rest: str) -> Turned:
        return Turned(theirs, rest=rest, interleaved=interleaved, columns_first=columns_first)

    parts = ("weight", "bias")
    return replace(
        TIMM,
        name=name,
        about=about,
        keys={
            **TIMM.keys,
            **weight_and_bias({"embedding_norm": "norm_pre"}),
            **_expand(lambda config: config.mlp == "swiglu" and config.mlp_norm),
            **{f"{layer}.qkv.{part}": turned(f"blocks.{{i}}.attn.qkv.{part}") for part in parts},
            **{f"{layer}.query_norm.{part}": turned(f"blocks.{{i}}.attn.q_norm.{part}") for part in parts},
            **{f"{layer}.key_norm.{part}": turned(f"blocks.{{i}}.attn.k_norm.{part}") for part in parts},
            "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.gamma_1"),
            "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.gamma_2"),
        },
        older={
            **TIMM.older,
            f"{layer}.qkv.weight": turned(*(f"blocks.{{i}}.attn.{part}_proj.weight" for part in "qkv")),
            f"{layer}.qkv.bias": WithoutKeyBias(
                "blocks.{i}.attn.q_bias", rest=("blocks.{i}.attn.v_bias",), interleaved=interleaved, columns_first=columns_first
            ),
        },
        aliases={r"\.attn\.([qv])_proj\.bias$": r".attn.\1_bias"},
        needs=(),
        fields={"norm_eps": 1e-6},
        undecided=("position", "pool", "norm_eps"),
        read=_reader(name),
        describe=_describe_eva(name),
        colours=CLIP_COLOURS,
    )


EVA = _eva("timm-eva", "timm's EVA", interleaved=True, columns_first=False)
DINOV3 = _eva("timm-dinov3", "timm's DINOv3", interleaved=False, columns_first=False)
ROPE = _eva("timm-rope", "timm's ViT with rotary positions", interleaved=True, columns_first=True)

BEIT = replace(
    TIMM,
    name="timm-beit",
    about="timm's BEiT",
    keys={
        **TIMM.keys,
        "blocks.{i}.attention.layer.qkv.bias": WithoutKeyBias("blocks.{i}.attn.q_bias", rest=("blocks.{i}.attn.v_bias",)),
        "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.gamma_1"),
        "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.gamma_2"),
        "relative.tables.{i}": Key("blocks.{i}.attn.relative_position_bias_table"),
    },
    ignored=(r".*relative_position_index", r".*\.k_bias", r"mask_token"),
    needs=("relative.tables.0",),
    fields={"norm_eps": 1e-6},
    read=_reader("timm-beit"),
    describe=_describe_beit,
)

MAE_PARTS = ("class_token", "position.", "embedding.projection", "blocks.", "norm.", "head.")
NOT_OF_MAE = (".scale.", "query_norm", "key_norm", "output_norm", "layer.norm")
MAE_ORIGINAL = replace(
    TIMM,
    name="mae-original",
    about="the encoder of the original MAE",
    family="",
    keys={
        name: key
        for name, key in TIMM.keys.items()
        if name.startswith(MAE_PARTS) and not any(part in name for part in NOT_OF_MAE)
    },
    needs=(*TIMM.needs, "class_token"),
    fields={"norm_eps": 1e-6},
    activations={},
    lacks=not_plain_or_no_bias,
    ignored=(r"decoder_.*", r"mask_token"),
    read=None,
    describe=None,
    describe_data=None,
    colours=IMAGENET,
)
