"""The layout of the authors' T2T-ViTs, whose files hold weights under ``state_dict_ema``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.models.configs.t2t import T2TConfig
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, Shape, block, count_of, weight_and_bias
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depth_of, require_shapes, usual_heads
from vitrail.weights.normalization import IMAGENET

NEEDED = (
    "embedding.layers.0.norm.weight", "embedding.layers.0.mlp.norm.weight", "embedding.projection.weight",
    "blocks.0.attention.norm.weight", "blocks.0.mlp.layer.expand.weight", "position.embedding",
)  # fmt: skip
"""Parameters without which the configuration cannot be inferred."""
DIMENSIONS = {"norm.weight": 1, "projection.weight": 2, "expand.weight": 2, "features": 2, "head.linear.weight": 2,
              "position.embedding": 3}  # fmt: skip
"""Number of dimensions by the suffix of a parameter's name."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes; images are square unless another size is given."""
    names = sorted({*NEEDED, *shapes})
    require_shapes(shapes, {name: n for name in names for end, n in DIMENSIONS.items() if name.endswith(end)}, "a T2T-ViT")
    dim, head = shapes["blocks.0.attention.norm.weight"][0], shapes.get("head.linear.weight")
    token_dim = shapes["embedding.layers.0.mlp.norm.weight"][0]
    features = next((shape for name, shape in shapes.items() if name.endswith("mixer.features")), None)
    count = count_of((int(name.split(".")[2]) for name in shapes if name.startswith("embedding.layers.")), "token layer")
    widths = [shapes.get(f"embedding.layers.{i}.norm.weight", (0,))[0] for i in range(count)]
    channels, *sides = _sides([*widths, shapes["embedding.projection.weight"][1]], token_dim)
    fields = {
        "token_dropout": T2TConfig.model_fields["token_dropout"].default if features else 0.0,
        **known,
        "patch_sizes": tuple(sides),
        "channels": channels,
        "num_classes": head[0] if head else 0,
        "token_mixer": "performer" if features else "transformer",
        "token_dim": token_dim,
        "dim": dim,
        "depth": depth_of(shapes),
        "heads": known.get("heads") or usual_heads(dim),
        "mlp_dim": shapes["blocks.0.mlp.layer.expand.weight"][0],
        "qkv_bias": "blocks.0.attention.layer.qkv.bias" in shapes,
        **({"random_features": features[0]} if features else {}),
    }
    return {**fields, "image_size": _image_size(shapes["position.embedding"][1] - 1, fields, image_size)}


def _sides(widths: list[int], token_dim: int) -> list[int]:
    """Return the images' channels (3 or 1), then the side of a patch in every split; ``widths`` are their products."""
    for channels in (3, 1):
        squares = [width / wide for width, wide in zip(widths, [channels, *[token_dim] * (len(widths) - 1)], strict=True)]
        sides = [math.isqrt(max(0, int(square))) for square in squares]
        if all(side and side**2 == square for side, square in zip(sides, squares, strict=True)):
            return [channels, *sides]
    what = f"patches of {', '.join(map(str, widths))} numbers are not square"
    raise ModelFileError(what, where="weights", hint="give the weights of a T2T-ViT for images with 3 channels or 1")


def _image_size(tokens: int, fields: Mapping[str, Any], image_size: Size | None) -> Size:
    config, side = T2TConfig.read({name: value for name, value in fields.items() if name != "image_size"}), math.isqrt(tokens)
    tried = [size for size in (fields.get("image_size"), image_size) if size is not None]
    for size in (*tried, (side * config.patch_size[0], side * config.patch_size[1])):
        if min(size) and math.prod(config.changed(image_size=size).grid) == tokens:
            return tuple(size)
    what = f"no square image has {tokens} tokens"
    raise ModelFileError(what, where="weights", hint="give the image size of the model: image_size=(height, width)")


def _performs(config: T2TConfig) -> bool:
    return config.token_mixer == "performer"


def _transforms(config: T2TConfig) -> bool:
    return config.token_mixer == "transformer"


def _canonical(config: T2TConfig) -> T2TConfig:
    """Return the configuration with the default of ``random_features``, unless the model is a Performer, which uses it."""
    return config if _performs(config) else config.changed(random_features=T2TConfig.model_fields["random_features"].default)


@dataclass(frozen=True)
class KeysFirst(Key):
    """Keys, queries and values in one matrix, in this order; in ours the queries come first."""

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        first, second, values = tensors[0].chunk(3)
        return torch.cat([second, first, values])

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        return [self.read([tensor], config)]


OURS, THEIRS = "embedding.layers.{j}", "tokens_to_token.attention{J}"
DIFFERING = {"mixer.output": ("proj", "attn.proj"), "mlp.layer.expand": ("mlp.0", "mlp.fc1"),
             "mlp.layer.contract": ("mlp.2", "mlp.fc2")}  # fmt: skip
"""Layers whose keys differ between Performers and Transformers."""

T2T = Layout(
    name="t2t",
    about="the authors' T2T-ViT",
    reading=Reading(
        architecture="T2T", fields=_fields, not_in_file=("heads", "strides", "attention_scale"), canonical=_canonical
    ),
    keys={
        "class_token": Key("cls_token"),
        "position.embedding": Key("pos_embed", 3),
        f"{OURS}.mixer.features": Key(f"{THEIRS}.w"),
        f"{OURS}.mixer.qkv.weight": (
            KeysFirst(f"{THEIRS}.kqv.weight", when=_performs),
            Key(f"{THEIRS}.attn.qkv.weight", when=_transforms),
        ),
        f"{OURS}.mixer.qkv.bias": KeysFirst(f"{THEIRS}.kqv.bias"),
        **{
            f"{OURS}.{ours}.{part}": (
                Key(f"{THEIRS}.{a}.{part}", when=_performs),
                Key(f"{THEIRS}.{b}.{part}", when=_transforms),
            )
            for ours, (a, b) in DIFFERING.items()
            for part in ("weight", "bias")
        },
        **block("blocks.{i}", "norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"),
        **weight_and_bias(
            {
                f"{OURS}.norm": f"{THEIRS}.norm1",
                f"{OURS}.mlp.norm": f"{THEIRS}.norm2",
                "embedding.projection": "tokens_to_token.project",
                "norm": "norm",
                "head.linear": "head",
            }
        ),
    },
    fields={"norm_eps": 1e-5},
    written=False,
    needs=("position.embedding",),
    colours=replace(IMAGENET, crop_ratio=0.9),
    interpolation=Interpolation("bicubic", antialias=False),
)
