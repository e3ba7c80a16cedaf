"""Inference of a Vision Transformer's configuration from the shapes of its parameters."""

import math
from collections.abc import Mapping
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.vit_names import SIZES
from vitrail.weights.keys import Shape
from vitrail.weights.layouts.shapes import depth_of, usual_heads

Shapes = Mapping[str, Shape]
NEEDED = ("embedding.projection.weight", "blocks.0.attention.norm.weight", "blocks.0.attention.layer.qkv.weight",
          "blocks.0.mlp.layer.contract.weight")  # fmt: skip
"""Parameters without which the configuration cannot be inferred."""
DIMENSIONS = {
    **dict.fromkeys(("embedding.projection.weight", "embedding.resnet.root.0.weight"), (4, 4)),
    **dict.fromkeys(("blocks.0.attention.norm.weight", "blocks.0.attention.layer.query_norm.weight"), (1, 1)),
    **dict.fromkeys(("position.embedding", "registers"), (2, 4)),
    **dict.fromkeys(
        (
            "blocks.0.attention.layer.qkv.weight", "blocks.0.mlp.layer.expand.weight", "blocks.0.mlp.layer.contract.weight",
            "head.linear.weight", "pool.mlp.layer.expand.weight", "relative.table", "relative.tables.0",
        ),
        (2, 2),
    ),
}  # fmt: skip
"""Minimum and maximum number of dimensions of the shapes that are used; tables of tokens may have leading ones."""


def fields_of(shapes: Shapes, known: Mapping[str, Any], *, image_size: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the fields of a `ViTConfig` for parameters of these shapes.

    Args:
        shapes: shapes of our parameters.
        known: fields that are known from elsewhere; they decide where shapes leave a choice (heads, pool, image_size).
        image_size: image size to try first for the position table; a square is tried next.

    Raises:
        ModelFileError: shapes do not decide a field; the message names the field to give.
    """
    missing = [name for name in NEEDED if name not in shapes]
    if missing:
        raise ModelFileError(f"no {missing[0]}", where="weights")
    for name, (least, most) in DIMENSIONS.items():
        if name in shapes and not (least <= len(shapes[name]) <= most and all(shapes[name])):
            what = f"{name} has the shape {shapes[name]}"
            raise ModelFileError(what, where="weights")
    dim = shapes["blocks.0.attention.norm.weight"][0]
    fields: dict[str, Any] = {
        "dim": dim,
        "norm_kind": "layer" if "blocks.0.attention.norm.bias" in shapes else "rms",
        "linear_bias": any(f"blocks.0.{layer}.bias" in shapes for layer in ("attention.layer.output", "mlp.layer.contract")),
        "depth": depth_of(shapes),
        **_embedding(shapes),
        **_attention(shapes, dim, known),
        **_mlp(shapes, known),
        **_tokens_and_head(shapes, dim, known),
    }
    if "blocks.0.attention.scale.gamma" in shapes:
        fields["layer_scale"] = known.get("layer_scale") or 1.0
    fields = {**known, **fields}
    if fields["pool_mlp_dim"] == fields["mlp_dim"]:
        fields["pool_mlp_dim"] = None
    return {**fields, **_positions(shapes, fields, image_size)}


def _embedding(shapes: Shapes) -> dict[str, Any]:
    _, channels, *patch = shapes["embedding.projection.weight"]
    places = {"embedding_norm": "tokens", "embedding.patch_norm": "patches", "embedding.token_norm": "projected"}
    norm = next((place for name, place in places.items() if f"{name}.weight" in shapes), "none")
    fields: dict[str, Any] = {"channels": channels, "patch_size": tuple(patch), "embedding_norm": norm}
    root = shapes.get("embedding.resnet.root.0.weight")
    if root is None:
        return fields
    blocks = {tuple(map(int, name.split(".")[3:5])) for name in shapes if name.startswith("embedding.resnet.stages.")}
    depths = tuple(sum(stage == s for stage, _ in blocks) for s in range(len({stage for stage, _ in blocks})))
    large = root[2] == 7
    stride = (4 if large else 1) * 2 ** max(0, len(depths) - 1)
    return {
        **fields,
        "embedding": "resnet",
        "channels": root[1],
        "patch_size": tuple(stride * side for side in patch),
        "resnet_depths": depths,
        "resnet_width": root[0],
        "resnet_root": "imagenet" if large else "cifar",
    }


def _attention(shapes: Shapes, dim: int, known: Mapping[str, Any]) -> dict[str, Any]:
    layer = "blocks.0.attention.layer"
    inner = shapes[f"{layer}.qkv.weight"][0] // 3  # heads · D_h
    fields = {
        "qkv_bias": f"{layer}.qkv.bias" in shapes,
        "qk_norm": f"{layer}.query_norm.weight" in shapes,
        "attention_norm": f"{layer}.output_norm.weight" in shapes,
    }
    if fields["qk_norm"]:
        width = shapes[f"{layer}.query_norm.weight"][0]
    elif "relative.tables.0" in shapes:
        width = inner // max(1, shapes["relative.tables.0"][1])
    elif "heads" in known:
        width = inner // known["heads"]
    elif "head_dim" in known:
        width = known["head_dim"]
    else:
        width = _usual_width(inner)
    heads = inner // max(1, width)
    return {**fields, "heads": heads, "head_dim": None if inner == dim else width}


def _usual_width(inner: int) -> int:
    """Return the width of a head in the published models with query rows ``inner``; 64 for any other width."""
    widths = {size["dim"]: size["dim"] // size["heads"] for size in SIZES.values()}
    width = widths.get(inner, 72 if inner == 1152 else 64)  # 1152 is SigLIP's So400m, with 16 heads
    usual_heads(inner, width, "queries")  # raises an error if the width does not divide it
    return width


def _mlp(shapes: Shapes, known: Mapping[str, Any]) -> dict[str, Any]:
    mlp_dim = shapes["blocks.0.mlp.layer.contract.weight"][1]
    gated = shapes.get("blocks.0.mlp.layer.expand.weight", (mlp_dim,))[0] == 2 * mlp_dim
    norm = "blocks.0.mlp.layer.norm.weight" in shapes
    return {"mlp_dim": mlp_dim, "mlp": "swiglu" if gated else known.get("mlp", "gelu"), "mlp_norm": norm}


def _tokens_and_head(shapes: Shapes, dim: int, known: Mapping[str, Any]) -> dict[str, Any]:
    token = "class_token" in shapes
    if "distillation_token" in shapes and not token:
        raise ModelFileError("no class_token beside distillation_token", where="weights")
    head = shapes.get("head.linear.weight")
    kind = "mlp" if "head.hidden.weight" in shapes else known.get("head", "linear")
    if "pool.query" in shapes:
        patches = known.get("pool") == "attention-patches" and (token or "registers" in shapes)
        pool = "attention-patches" if patches else "attention"
    elif head is not None and head[1] == 2 * dim:
        pool = "class+mean"
    else:
        pool = known.get("pool", "class" if token and known.get("final_norm") != "pooled" else "mean")
    distilled = "head_distillation.linear.weight" in shapes or (head is None and known.get("distillation_token", False))
    bare = "distillation_token" in shapes and not distilled  # it becomes one more register
    return {
        "class_token": token and "class" not in pool,
        "distillation_token": "distillation_token" in shapes and distilled,
        "registers": (shapes["registers"][-2] if "registers" in shapes else 0) + bare,
        "pool": pool,
        "head": kind,
        "num_classes": 0 if head is None else head[0],
        "pool_mlp_dim": shapes.get("pool.mlp.layer.expand.weight", (None,))[0],
    }


def _positions(shapes: Shapes, fields: Mapping[str, Any], image_size: tuple[int, int] | None) -> dict[str, Any]:
    embedding = shapes.get("position.embedding")
    patch = fields["patch_size"]
    stated = fields.get("position", "")
    rotary = stated.endswith("rotary")
    sizes = [size for size in (fields.get("image_size"), image_size) if size is not None]
    if embedding is None:
        tables = {"relative.tables.0": "relative-per-block", "relative.table": "relative"}
        table = next((name for name in tables if name in shapes), None)
        computed = "rotary" if rotary else stated if stated.startswith("sincos") else "none"
        position = tables[table] if table else computed
        side = (math.isqrt(shapes[table][0]) + 1) // 2 if table else 0  # of (2 · side − 1)² offsets
        if not sizes and not table:
            what = "the weights do not show the image size, as their positions have no parameters"
            raise ModelFileError(what, where="weights", hint="give the image size: image_size=(height, width)")
        size = sizes[0] if sizes else (side * patch[0], side * patch[1])
        return {"position": position, "image_size": size, **_remainder(size, patch)}
    position = "learned-1d+rotary" if rotary else "learned-1d"
    rows = embedding[-2]
    counts = [rows - extra for extra in prefix_rows(shapes) if rows > extra]
    for size in sizes:
        if (size[0] // patch[0]) * (size[1] // patch[1]) in counts:
            return {"position": position, "image_size": tuple(size), **_remainder(size, patch), **_rows(shapes, size, patch)}
    for count in counts:
        side = math.isqrt(count)
        if side * side == count:
            size = (side * patch[0], side * patch[1])
            return {"position": position, "image_size": size, **_rows(shapes, size, patch)}
    raise ModelFileError(
        f"the positions of {counts[-1] if len(counts) == 1 else ' or '.join(map(str, counts))} patches form no square",
        where="weights",
        hint="give the image size of the model: image_size=(height, width)",
    )


def _remainder(size: tuple[int, int], patch: tuple[int, int]) -> dict[str, Any]:
    return {"crop_remainder": any(side % step for side, step in zip(size, patch, strict=True))}


def _rows(shapes: Shapes, size: tuple[int, int], patch: tuple[int, int]) -> dict[str, Any]:
    """Return ``class_position``: whether the position table has rows for tokens, too; True for a model without tokens."""
    patches = (size[0] // patch[0]) * (size[1] // patch[1])
    tokens = "class_token" in shapes or "distillation_token" in shapes
    return {"class_position": not tokens or shapes["position.embedding"][-2] > patches}


def prefix_rows(shapes: Shapes) -> list[int]:
    """Return the possible numbers of rows before the patches in a position table: tokens and registers, tokens only, none."""
    tokens = ("class_token" in shapes) + ("distillation_token" in shapes)
    registers = shapes["registers"][-2] if "registers" in shapes else 0
    return list(dict.fromkeys([tokens + registers, tokens, 0]))
