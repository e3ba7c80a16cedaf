"""The layouts of MLP-Mixers: timm's, and Google's Flax (``.npz``)."""

from collections.abc import Mapping
from typing import Any

from vitrail.errors import ConfigError
from vitrail.models.configs.mixer import SIZES, MixerConfig, preset_of
from vitrail.weights.keys import Key, Shape, Transposed, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depth_of, image_size_of, require_shapes
from vitrail.weights.layouts.timm.arguments import known_name, told_by
from vitrail.weights.layouts.timm.description import timm_data
from vitrail.weights.normalization import Colours

NEEDED = (
    "embedding.projection.weight",
    "blocks.0.tokens.layer.expand.weight",
    "blocks.0.tokens.layer.contract.weight",
    "blocks.0.channels.layer.expand.weight",
)
"""Without these nothing can be said."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """The configuration that parameters of these shapes belong to; images are square unless somebody says otherwise."""
    require_shapes(shapes, {name: 4 if name == NEEDED[0] else 2 for name in NEEDED}, "an MLP-Mixer")
    dim, channels, *sides = shapes[NEEDED[0]]
    patch = (sides[0], sides[1])
    token_dim, tokens = shapes[NEEDED[1]]
    head = shapes.get("head.linear.weight")
    return {
        **known,
        "image_size": image_size_of(tokens, patch, (known.get("image_size"), image_size)),
        "patch_size": patch,
        "channels": channels,
        "num_classes": head[0] if head else 0,
        "dim": dim,
        "depth": depth_of(shapes),
        "token_dim": token_dim,
        "channel_dim": shapes[NEEDED[3]][0],
    }


READING = Reading(architecture="Mixer", fields=_fields, guesses=lambda config, told: ["GELU", "the mean of all tokens"])

SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
    "embed_dim": "dim", "num_blocks": "depth",
}  # fmt: skip
"""timm's arguments that mean the same as fields of ours."""
HARMLESS = words("drop_rate drop_path_rate proj_drop_rate nlhb mlp_ratio")
"""Those of training, and what shows in shapes."""


FIXED: dict[str, tuple[Any, ...]] = {"global_pool": ("avg",)}
MODELS = [f"mixer_{size.lower()}{patch}_224" for size in SIZES for patch in (16, 32)]


def _read_timm(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that timm's ``config.json`` tells; refuses what is not understood."""
    name = known_name(values, MODELS)
    if name is None:
        return {}
    told = {**(preset_of(name) or {}), **told_by(values, MixerConfig, same=SAME, harmless=HARMLESS, fixed=FIXED)}
    return {name: value for name, value in told.items() if name not in ("token_dim", "channel_dim")}  # shapes tell


def _describe_timm(config: MixerConfig) -> dict[str, Any]:
    """What timm builds the same model of."""
    if config.norm_eps != 1e-6:
        raise ConfigError(
            f"timm's Mixer has norms with an epsilon of 1e-6, not {config.norm_eps:g}",
            where="--layout",
            hint="take another layout",
        )
    sizes = [size for size, fields in SIZES.items() if (fields["dim"], fields["depth"]) == (config.dim, config.depth)]
    patch = config.patch_size[0]
    if not sizes or config.patch_size not in ((16, 16), (32, 32)):
        what = f"timm has no Mixer of width {config.dim}, depth {config.depth} and patches of {patch}×{config.patch_size[1]}"
        raise ConfigError(what, where="--layout", hint="its sizes are S, B and L with patches of 16 or 32; take another layout")
    ratios = tuple(ratio_of(width, config.dim) for width in (config.token_dim, config.channel_dim))
    return {
        "architecture": f"mixer_{sizes[0].lower()}{patch}_224",
        "num_classes": config.num_classes,
        "num_features": config.dim,
        "model_args": {"img_size": config.image_size, "in_chans": config.channels, "mlp_ratio": ratios},
    }


BLOCK = "blocks.{i}"

TIMM = Layout(
    name="timm-mixer",
    about="timm's MLP-Mixer",
    family="timm",
    reading=READING,
    keys=weight_and_bias(
        {
            "embedding.projection": "stem.proj",
            f"{BLOCK}.tokens.norm": f"{BLOCK}.norm1",
            f"{BLOCK}.tokens.layer.expand": f"{BLOCK}.mlp_tokens.fc1",
            f"{BLOCK}.tokens.layer.contract": f"{BLOCK}.mlp_tokens.fc2",
            f"{BLOCK}.channels.norm": f"{BLOCK}.norm2",
            f"{BLOCK}.channels.layer.expand": f"{BLOCK}.mlp_channels.fc1",
            f"{BLOCK}.channels.layer.contract": f"{BLOCK}.mlp_channels.fc2",
            "norm": "norm",
            "head.linear": "head",
        }
    ),
    fields={"norm_eps": 1e-6},
    colours=Colours(crop_ratio=0.875),
    read=_read_timm,
    describe=_describe_timm,
    describe_data=timm_data,
)

THEIRS = "MixerBlock_{i}"
LINEAR = {
    "embedding.projection": "stem",
    f"{BLOCK}.tokens.layer.expand": f"{THEIRS}/token_mixing/Dense_0",
    f"{BLOCK}.tokens.layer.contract": f"{THEIRS}/token_mixing/Dense_1",
    f"{BLOCK}.channels.layer.expand": f"{THEIRS}/channel_mixing/Dense_0",
    f"{BLOCK}.channels.layer.contract": f"{THEIRS}/channel_mixing/Dense_1",
    "head.linear": "head",
}
NORMS = {f"{BLOCK}.tokens.norm": f"{THEIRS}/LayerNorm_0", f"{BLOCK}.channels.norm": f"{THEIRS}/LayerNorm_1",
         "norm": "pre_head_layer_norm"}  # fmt: skip

GOOGLE = Layout(
    name="google-mixer",
    about="Google's Flax Mixer",
    family="google",
    reading=READING,
    keys={
        **{f"{ours}.weight": Transposed(f"{theirs}/kernel") for ours, theirs in LINEAR.items()},
        **{f"{ours}.weight": Key(f"{theirs}/scale") for ours, theirs in NORMS.items()},
        **{f"{ours}.bias": Key(f"{theirs}/bias") for ours, theirs in (LINEAR | NORMS).items()},
    },
    aliases={r"^(opt/target|params)/": ""},
    fields={"norm_eps": 1e-6},
    suffix=".npz",
)
