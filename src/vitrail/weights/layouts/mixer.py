"""The layouts of MLP-Mixers: timm's, and Google's Flax (``.npz``)."""

import math
from collections.abc import Mapping
from typing import Any

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.mixer import SIZES, MixerConfig, preset_of
from vitrail.settings import brief
from vitrail.weights.colours import Colours
from vitrail.weights.keys import Key, Shape, Transposed, count_of, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.timm_arguments import own_arguments
from vitrail.weights.layouts.timm_description import timm_data

NEEDED = (
    "embedding.projection.weight",
    "blocks.0.tokens.layer.expand.weight",
    "blocks.0.tokens.layer.contract.weight",
    "blocks.0.channels.layer.expand.weight",
)
"""Without these nothing can be said."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """The configuration that parameters of these shapes belong to; images are square unless somebody says otherwise."""
    for name in NEEDED:
        if len(shapes.get(name, ())) != (4 if name == NEEDED[0] else 2):
            raise ModelFileError(f"no {name} of an MLP-Mixer", where="weights", hint="give the weights of an MLP-Mixer")
    dim, channels, *patch = shapes[NEEDED[0]]
    token_dim, tokens = shapes[NEEDED[1]]
    head = shapes.get("head.linear.weight")
    side = math.isqrt(tokens)
    sizes = [size for size in (known.get("image_size"), image_size) if size is not None]
    fitting = [size for size in sizes if math.prod(a // b for a, b in zip(size, patch, strict=True)) == tokens]
    if not fitting and side * side != tokens:
        what = f"{tokens} tokens form no square"
        raise ModelFileError(what, where="weights", hint="give the size of the images: image_size=(height, width)")
    return {
        **known,
        "image_size": fitting[0] if fitting else (side * patch[0], side * patch[1]),
        "patch_size": tuple(patch),
        "channels": channels,
        "num_classes": head[0] if head else 0,
        "dim": dim,
        "depth": count_of((int(name.split(".")[1]) for name in shapes if name.startswith("blocks.")), "block"),
        "token_dim": token_dim,
        "channel_dim": shapes[NEEDED[3]][0],
    }


READING = Reading(architecture="Mixer", fields=_fields, guesses=lambda config, told: ["GELU", "the mean of all tokens"])

SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
    "embed_dim": "dim", "num_blocks": "depth",
}  # fmt: skip
"""timm's arguments that mean the same as fields of ours."""
WITHOUT_EFFECT = words("drop_rate drop_path_rate proj_drop_rate nlhb mlp_ratio")
"""Those of training, and what shows in shapes."""


def _read_timm(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that timm's ``config.json`` tells; refuses what is not understood."""
    name = values.get("architecture")
    if name is None:
        return {}
    preset = preset_of(str(name))
    if preset is None:
        known = ", ".join(f"mixer_{size.lower()}16_224" for size in SIZES)
        raise ModelFileError(f"unknown architecture {brief(name)}", where="config.json", hint=f"known: {known} …")
    told = dict(preset)
    for argument, value in own_arguments(values).items():
        if argument in SAME:
            told[SAME[argument]] = MixerConfig.read_field(SAME[argument], value, where="config.json")
        elif argument not in WITHOUT_EFFECT and (argument, value) != ("global_pool", "avg"):
            hint = "give a model whose parts are known"
            raise ModelFileError(f"{argument}={brief(value)} is not known here", where="config.json", hint=hint)
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
