"""The layouts of MLP-Mixers: of timm, and of Google's Flax (``.npz``)."""

from collections.abc import Mapping
from typing import Any

from vitrail.models.configs.mixer import SIZES, MixerConfig, preset_of
from vitrail.weights.keys import Shape, Transposed, layers, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depth_of, image_size_of, require_shapes
from vitrail.weights.layouts.timm.arguments import Arguments
from vitrail.weights.layouts.timm.description import inexpressible, named, timm_data
from vitrail.weights.normalization import Colours

NEEDED = (
    "embedding.projection.weight",
    "blocks.0.tokens.layer.expand.weight",
    "blocks.0.tokens.layer.contract.weight",
    "blocks.0.channels.layer.expand.weight",
)
"""Parameters without which the configuration cannot be inferred."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes; images are square unless another size is given."""
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


READING = Reading(architecture="Mixer", fields=_fields, not_in_file=("GELU", "the mean of all tokens"))

ARGUMENTS = Arguments(
    MixerConfig,
    same={
        "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
        "embed_dim": "dim", "num_blocks": "depth",
    },
    harmless=words("drop_rate drop_path_rate proj_drop_rate nlhb mlp_ratio"),
    fixed={"global_pool": ("avg",)},
)  # fmt: skip
SHOWN = ("token_dim", "channel_dim")
"""Fields that shapes show; they are not taken from the preset of a name."""
MODELS = {
    name: {field: value for field, value in (preset_of(name) or {}).items() if field not in SHOWN}
    for name in (f"mixer_{size.lower()}{patch}_224" for size in SIZES for patch in (16, 32))
}


def _describe_timm(config: MixerConfig) -> dict[str, Any]:
    """Return timm's ``config.json`` for the model."""
    if config.norm_eps != 1e-6:
        raise inexpressible(f"Mixer with a norm epsilon of {config.norm_eps:g}, only of 1e-6")
    sizes = [size for size, fields in SIZES.items() if (fields["dim"], fields["depth"]) == (config.dim, config.depth)]
    patch = config.patch_size[0]
    if not sizes or config.patch_size not in ((16, 16), (32, 32)):
        patches = "×".join(map(str, config.patch_size))
        raise inexpressible(
            f"Mixer of width {config.dim}, depth {config.depth} and patches of {patches}, only S, B and L of 16 or 32"
        )
    ratios = tuple(ratio_of(width, config.dim) for width in (config.token_dim, config.channel_dim))
    arguments = {"img_size": config.image_size, "in_chans": config.channels, "mlp_ratio": ratios}
    return named(f"mixer_{sizes[0].lower()}{patch}_224", config, arguments)


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
    read=ARGUMENTS.of_presets(MODELS),
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
    written=False,
    about="Google's Flax Mixer",
    reading=READING,
    keys={
        **layers(LINEAR, "/kernel", "/bias", Transposed),
        **layers(NORMS, "/scale", "/bias"),
    },
    aliases={r"^(opt/target|params)/": ""},
    fields={"norm_eps": 1e-6},
    suffix=".npz",
)
