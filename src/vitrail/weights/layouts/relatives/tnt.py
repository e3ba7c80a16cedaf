"""The layouts of TNT: of the authors (https://github.com/huawei-noah/Efficient-AI-Backbones) and of timm."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.models.configs.tnt import TIMM as NAMES
from vitrail.models.configs.tnt import TNTConfig, preset_of
from vitrail.weights.keys import Joined, Key, Shape, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depth_of, image_size_of, require_shapes, usual_heads
from vitrail.weights.layouts.timm.arguments import Arguments
from vitrail.weights.layouts.timm.description import inexpressible, named, timm_data
from vitrail.weights.normalization import Colours

FIRST, BLOCK = "embedding.projection.weight", "blocks.{i}"
NEEDED = {
    FIRST: 4, "word_position.embedding": 2, "position.embedding": 2, "fold.projection.weight": 2, "blocks.0.fold.norm.weight": 1,
    "blocks.0.mlp.layer.expand.weight": 2,
}  # fmt: skip
"""Parameters without which the configuration cannot be inferred, and their numbers of dimensions."""
WORD_HEADS, WORD_STRIDE = 4, 4
"""The values of all published models."""


@dataclass(frozen=True)
class Row(Key):
    """One of our tables, (N, D), that they store as (1, N, D)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        _, count, width = shapes[0]
        return count, width

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        return [tensor[None]]


@dataclass(frozen=True)
class AsMap(Key):
    """Our position table of words, (n, d), that timm stores as a feature map (1, d, rows, columns)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        _, dim, rows, columns = shapes[0]
        return rows * columns, dim

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        return tensors[0][0].flatten(1).T.contiguous()

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        return [tensor.T.unflatten(1, config.word_grid)[None]]


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for these shapes; images and patches are square unless other sizes are given."""
    require_shapes(shapes, NEEDED, "a TNT")
    word_dim, channels = shapes[FIRST][:2]
    dim, count = shapes["fold.projection.weight"][0], shapes["word_position.embedding"][0]
    stride, head = known.get("word_stride", WORD_STRIDE), shapes.get("head.linear.weight")
    side = math.isqrt(count) * stride
    patch: Size = known.get("patch_size", (side, side))
    hidden, width = shapes["blocks.0.mlp.layer.expand.weight"]
    return {
        "word_heads": WORD_HEADS,
        **known,
        "heads": known.get("heads") or usual_heads(dim),
        "word_stride": stride,
        "patch_size": patch,
        "image_size": image_size_of(shapes["position.embedding"][0] - 1, patch, [known.get("image_size"), image_size]),
        "channels": channels,
        "num_classes": head[0] if head else 0,
        "dim": dim,
        "word_dim": word_dim,
        "depth": depth_of(shapes),
        "mlp_ratio": ratio_of(hidden, width),
        "qkv_bias": "blocks.0.attention.layer.qkv.bias" in shapes,
        "legacy": "blocks.0.fold.output_norm.weight" not in shapes,
    }


READING = Reading(architecture="TNT", fields=_fields, not_in_file=("heads", "word_heads", "word_stride", "patch_size"))


LAYERS = {
    "inner.attention.norm": ("norm_in", "inner_norm1"),
    "inner.attention.layer.output": ("attn_in.proj", "inner_attn.proj"),
    "inner.mlp.norm": ("norm_mlp_in", "inner_norm2"),
    "inner.mlp.layer.expand": ("mlp_in.fc1", "inner_mlp.fc1"),
    "inner.mlp.layer.contract": ("mlp_in.fc2", "inner_mlp.fc2"),
    "fold.norm": ("norm1_proj", "proj_norm1"),
    "fold.projection": ("proj", "proj"),
    "fold.output_norm": ("norm2_proj", "proj_norm2"),
    "attention.norm": ("norm_out", "outer_norm1"),
    "attention.layer.output": ("attn_out.proj", "outer_attn.proj"),
    "mlp.norm": ("norm_mlp", "outer_norm2"),
    "mlp.layer.expand": ("mlp.fc1", "outer_mlp.fc1"),
    "mlp.layer.contract": ("mlp.fc2", "outer_mlp.fc2"),
}
"""Our layers of a block to timm's and the authors' names. Those of ``fold`` exist outside of the blocks, too."""


def _keys(column: int, embedding: str, inner: str, outer: str) -> dict[str, Key]:
    """Return the rows of all layers. They store queries and keys in one tensor, and values in another."""
    rows = {"norm": "norm", "head.linear": "head", "embedding.projection": embedding}
    rows |= {ours: theirs[column] for ours, theirs in LAYERS.items() if ours.startswith("fold.")}
    rows |= {f"{BLOCK}.{ours}": f"{BLOCK}.{theirs[column]}" for ours, theirs in LAYERS.items()}
    keys: dict[str, Key] = {"class_token": Key("cls_token"), **weight_and_bias(rows)}
    for ours, theirs in {"inner.attention.layer": inner, "attention.layer": outer}.items():
        for leaf in ("weight", "bias"):
            first, rest = f"{BLOCK}.{theirs}.qk.{leaf}", (f"{BLOCK}.{theirs}.v.{leaf}",)
            keys[f"{BLOCK}.{ours}.qkv.{leaf}"] = Joined(first, rest=rest, shares=(2, 1))
    return keys


ARGUMENTS = Arguments(
    TNTConfig,
    same={
        "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
        "embed_dim": "dim", "inner_dim": "word_dim", "depth": "depth", "num_heads_outer": "heads",
        "num_heads_inner": "word_heads", "first_stride": "word_stride", "legacy": "legacy",
    },
    harmless=words("attn_drop_rate drop_path_rate drop_rate mlp_ratio pos_drop_rate proj_drop_rate qkv_bias"),
    fixed={"global_pool": ("token",)},
)  # fmt: skip
USUAL = {"legacy": False, "word_heads": WORD_HEADS, "word_stride": WORD_STRIDE}
MODELS = {name: {**USUAL, **(preset_of(name) or {})} for name in NAMES}


def _describe_timm(config: TNTConfig) -> dict[str, Any]:
    """Return timm's ``config.json`` for the model."""
    if config.norm_eps != 1e-5 or config.mlp_ratio != 4:
        raise inexpressible(f"TNT of MLP ratio {config.mlp_ratio:g} and norm epsilon {config.norm_eps:g}, only of 4 and 1e-5")
    fields = config.model_dump()
    fitting = (name for name in NAMES if {"legacy": False, **(preset_of(name) or {})}.items() <= fields.items())
    arguments = {**ARGUMENTS.describe(config, "num_classes"), "qkv_bias": config.qkv_bias}
    return named(next(fitting, "tnt_s_patch16_224"), config, arguments, global_pool="token")


TIMM = Layout(
    name="timm-tnt",
    about="timm's TNT",
    family="timm",
    reading=READING,
    keys={
        "position.embedding": Row("patch_pos"),
        "word_position.embedding": AsMap("pixel_pos"),
        **_keys(0, "pixel_embed.proj", "attn_in", "attn_out"),
    },
    fields={"norm_eps": 1e-5},
    colours=Colours(crop_ratio=0.9),
    read=ARGUMENTS.of_presets(MODELS),
    describe=_describe_timm,
    describe_data=timm_data,
)

ORIGINAL = Layout(
    name="tnt-original",
    written=False,
    about="the authors' TNT",
    reading=READING,
    keys={
        "position.embedding": Row("outer_pos"),
        "word_position.embedding": Row("inner_pos"),
        **_keys(1, "patch_embed.proj", "inner_attn", "outer_attn"),
    },
    ignored=(r"outer_tokens",),  # zeros that are never used
    fields={"norm_eps": 1e-5},
    lacks=lambda config: "convolution across the borders of patches" if config.legacy else "",
    colours=Colours(crop_ratio=0.9),
)
