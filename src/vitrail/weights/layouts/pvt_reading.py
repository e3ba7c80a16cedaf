"""How the weights of both Pyramid Vision Transformers are understood, whatever library wrote them."""

import math
from collections.abc import Mapping
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.pvt import PyramidConfig
from vitrail.weights.keys import Shape, depths_of, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Size

BLOCK = "stages.{s}.blocks.{j}"
STAGES = 4
"""Of the authors' models."""
EPSILONS = {"norm_eps": 1e-6, "grid_norm_eps": 1e-5}
"""The authors'; transformers has one for all norms."""
HEADS = {(64, 128, 320, 512): (1, 2, 5, 8), (32, 64, 160, 256): (1, 2, 5, 8)}
"""Attention heads of the papers' widths, which no shape tells."""
DESCRIBED = {
    "image_size": "image_size",
    "channels": "num_channels",
    "dims": "hidden_sizes",
    "depths": "depths",
    "heads": "num_attention_heads",
    "mlp_ratios": "mlp_ratios",
    "patch_sizes": "patch_sizes",
    "qkv_bias": "qkv_bias",
    "norm_eps": "layer_norm_eps",
    "grid_norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "stochastic_depth": "drop_path_rate",
}
"""Fields of both by the names that transformers has for them."""
DEFAULTS = {"image_size": 224, "num_attention_heads": [1, 2, 5, 8], "layer_norm_eps": 1e-6}
HARMLESS = words("num_encoder_blocks")
"""It shows in the keys."""

Shapes = Mapping[str, Shape]


def stages_in(shapes: Shapes, known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that both versions have, but for the size of images."""
    depths = depths_of(shapes, r"stages\.(\d+)\.blocks\.(\d+)\.")
    embeddings = [_of(shapes, f"stages.{stage}.embedding.projection.weight", 4) for stage in range(len(depths))]
    hidden = [_of(shapes, f"stages.{stage}.blocks.0.mlp.layer.expand.weight", 2) for stage in range(len(depths))]
    dims, told = tuple(shape[0] for shape in embeddings), known.get("mlp_ratios", ())
    ratios = [ratio_of(width, dim) for width, dim in hidden]
    if len(told) == len(ratios):
        ratios = [
            given if int(given * dim) == width else ratio for given, ratio, (width, dim) in zip(told, ratios, hidden, strict=True)
        ]
    return {
        **known,
        "channels": embeddings[0][1],
        "num_classes": shapes["head.linear.weight"][0] if "head.linear.weight" in shapes else 0,
        "dims": dims,
        "depths": depths,
        "heads": known["heads"] if "heads" in known else _usual_heads(dims),
        "reductions": tuple(reduction_of(shapes, stage) or 1 for stage in range(len(depths))),
        "mlp_ratios": tuple(ratios),
        "qkv_bias": "stages.0.blocks.0.attention.layer.attention.query.bias" in shapes,
        "patch_sizes": tuple(shape[2] for shape in embeddings),
    }


def _of(shapes: Shapes, name: str, ndim: int) -> Shape:
    if len(shapes.get(name, ())) != ndim:
        what, hint = f"no {name} of a Pyramid Vision Transformer", "give the weights of a Pyramid Vision Transformer"
        raise ModelFileError(what, where="weights", hint=hint)
    return shapes[name]


def _usual_heads(dims: tuple[int, ...]) -> tuple[int, ...]:
    if dims not in HEADS:
        what = f"the weights do not tell how many heads there are in stages of {'-'.join(map(str, dims))}"
        raise ModelFileError(what, where="weights", hint="give heads: heads=(1, 2, 5, 8) in Python")
    return HEADS[dims]


def reduction_of(shapes: Shapes, stage: int) -> int | None:
    """Side of the convolution before keys and values of a stage; None where there is none."""
    name = f"stages.{stage}.blocks.0.attention.layer.reduction.projection.weight"
    return _of(shapes, name, 4)[2] if name in shapes else None


def square_of(table: int, patch: int, sizes: list[Size]) -> Size:
    """The size of images for so many positions of the first stage: one of those that are possible, or a square."""
    fitting = [size for size in sizes if math.prod(max(1, side // patch) for side in size) == table]
    side = math.isqrt(table)
    if not fitting and side * side != table:
        what, hint = f"{table} positions form no square", "give the size of the images: image_size=(height, width)"
        raise ModelFileError(what, where="weights", hint=hint)
    return fitting[0] if fitting else (side * patch, side * patch)


def guessed_heads(config: PyramidConfig, told: Mapping[str, Any]) -> list[str]:
    """Names the heads, where nobody has told them."""
    return [] if "heads" in told else [f"{'-'.join(map(str, config.heads))} heads"]


def blocks(theirs: str, **parts: str | tuple[str, ...]) -> dict[str, Any]:
    """The rows of blocks whose keys begin with ``theirs``; parts are called as their authors call them."""
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
"""What the authors, and timm, call the parts of a block."""
