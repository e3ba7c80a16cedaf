"""Rules to read the weights of both versions of Pyramid Vision Transformers from any library."""

from collections.abc import Mapping
from typing import Any

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.pvt import PyramidConfig
from vitrail.weights.keys import Shape, ratio_of, weight_and_bias, words
from vitrail.weights.layouts.shapes import depths_of, require_shapes

BLOCK = "stages.{s}.blocks.{j}"
PATCHES = "stages.{}.embedding.projection.weight"
EXPAND = "stages.{}.blocks.0.mlp.layer.expand.weight"
REDUCTION = "stages.{}.blocks.0.attention.layer.reduction.projection.weight"
EPSILONS = {"norm_eps": 1e-6, "grid_norm_eps": 1e-5}
"""The authors' epsilons; transformers has one epsilon for all norms."""
HEADS = {(64, 128, 320, 512): (1, 2, 5, 8), (32, 64, 160, 256): (1, 2, 5, 8)}
"""Attention heads by the papers' widths, as no shape shows them."""
DESCRIBED = {
    "image_size": "image_size",
    "channels": "num_channels",
    "dims": "hidden_sizes",
    "depths": "depths",
    "heads": "num_attention_heads",
    "mlp_ratios": "mlp_ratios",
    "patch_sizes": "patch_sizes",
    "qkv_bias": "qkv_bias",
    "grid_norm_eps": "layer_norm_eps",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "stochastic_depth": "drop_path_rate",
}
"""Our fields of both versions to transformers' names."""
DEFAULTS = {"image_size": 224, "num_attention_heads": [1, 2, 5, 8], "layer_norm_eps": 1e-6}
NOT_IN_FILE = ("heads", "GELU", *EPSILONS)
HARMLESS = words("num_encoder_blocks")
"""An entry that the keys show."""

Shapes = Mapping[str, Shape]


def stages_in(shapes: Shapes, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration fields of both versions, except the image size."""
    depths = depths_of(shapes)
    patches, expand, reduced = ([name.format(stage) for stage in range(len(depths))] for name in (PATCHES, EXPAND, REDUCTION))
    convolutions = [*patches, *(name for name in reduced if name in shapes)]
    require_shapes(shapes, {**dict.fromkeys(convolutions, 4), **dict.fromkeys(expand, 2)}, "a Pyramid Vision Transformer")
    dims, head = tuple(shapes[name][0] for name in patches), shapes.get("head.linear.weight")
    stated = known.get("mlp_ratios", ())
    if len(stated) != len(depths):
        stated = (None,) * len(depths)
    return {
        **known,
        "channels": shapes[patches[0]][1],
        "num_classes": head[0] if head else 0,
        "dims": dims,
        "depths": depths,
        "heads": known["heads"] if "heads" in known else _usual_heads(dims),
        "reductions": tuple(shapes[name][2] if name in shapes else 1 for name in reduced),
        "mlp_ratios": tuple(
            ratio_of(shapes[name][0], shapes[name][1], ratio) for name, ratio in zip(expand, stated, strict=True)
        ),
        "qkv_bias": "stages.0.blocks.0.attention.layer.attention.query.bias" in shapes,
        "patch_sizes": tuple(shapes[name][2] for name in patches),
    }


def _usual_heads(dims: tuple[int, ...]) -> tuple[int, ...]:
    if dims not in HEADS:
        what = f"the weights do not show the number of heads in stages of width {'-'.join(map(str, dims))}"
        raise ModelFileError(
            what, where="weights", hint="give heads: heads=(1, 2, 5, 8) in Python, --heads 1,2,5,8 in vitrail convert"
        )
    return HEADS[dims]


def same_widths(config: PyramidConfig) -> PyramidConfig:
    """Return the configuration with MLP ratios computed from the MLP widths; several ratios may give the same width."""
    ratios = tuple(ratio_of(int(dim * ratio), dim) for dim, ratio in zip(config.dims, config.mlp_ratios, strict=True))
    return config.changed(mlp_ratios=ratios)


def for_transformers(config: PyramidConfig, **more: Any) -> dict[str, Any]:
    """Return further entries of transformers' ``config.json``; raises `ConfigError` for MLP ratios that are not integers."""
    whole = [int(ratio) for ratio in config.mlp_ratios]
    if whole != list(config.mlp_ratios):
        what = f"transformers requires integer MLP ratios, not {'-'.join(f'{ratio:g}' for ratio in config.mlp_ratios)}"
        raise ConfigError(what, where="--layout", hint="give another layout")
    return {"mlp_ratios": whole, "num_encoder_blocks": len(config.depths), "hidden_act": "gelu", **more}


def blocks(theirs: str, **parts: str | tuple[str, ...]) -> dict[str, Any]:
    """Return the rows of blocks whose keys begin with ``theirs``; ``parts`` are the authors' names to keys below it."""
    ours = {
        "norm1": "attention.norm", "q": "attention.layer.attention.query", "kv": "attention.layer.attention.key_value",
        "proj": "attention.layer.attention.output", "sr": "attention.layer.reduction.projection",
        "sr_norm": "attention.layer.reduction.norm", "norm2": "mlp.norm", "fc1": "mlp.layer.expand",
        "dwconv": "mlp.layer.depthwise", "fc2": "mlp.layer.contract",
    }  # fmt: skip
    return weight_and_bias(
        {
            f"{BLOCK}.{ours[part]}": f"{theirs}.{key}" if isinstance(key, str) else tuple(f"{theirs}.{each}" for each in key)
            for part, key in parts.items()
        }
    )


AUTHORS = {
    "norm1": "norm1", "q": "attn.q", "kv": "attn.kv", "proj": "attn.proj", "sr": "attn.sr", "sr_norm": "attn.norm",
    "norm2": "norm2", "fc1": "mlp.fc1", "fc2": "mlp.fc2",
}  # fmt: skip
"""The parts of a block to their keys in the authors' files and in timm's."""
