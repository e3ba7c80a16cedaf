"""Rules to read the weights of Vision Transformers from any library."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitrail.models.configs.vit import ViTConfig
from vitrail.weights.keys import Shape
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.vit.shapes import fields_of

CHOICES = frozenset(("layer_scale", "class_token", "image_size", "registers", "distillation_token", "position", "class_position"))
"""Fields that the weights decide, whatever ``config.json`` states."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    if "position.embedding" in layout.needs and "position.embedding" not in shapes:
        image_size = image_size or (224, 224)  # any size will do: the missing parameter is reported later
    return fields_of(shapes, known, image_size=image_size)


def _refuses(config: ViTConfig, layout: Layout) -> str:
    if config.mlp == "swiglu" and "swiglu" not in layout.activations:
        return f"{layout.about} has no SwiGLU"
    if config.num_classes and layout.pools and config.pool not in layout.pools:
        return f"a head of {layout.about} has the pooling {' or '.join(layout.pools)}, not {config.pool}"
    return ""


def _holds(name: str, shape: Shape, config: ViTConfig) -> bool | None:
    """Accept tokens and position tables of any number of rows; `_settle` converts them."""
    if name not in ("class_token", "distillation_token", "registers", "position.embedding"):
        return None
    rows = math.prod(shape[:-1]) if name in ("class_token", "distillation_token") else math.prod(shape[:-2])
    return shape[-1:] == (config.dim,) and rows == 1


def _settle(ours: dict[str, Tensor], config: ViTConfig) -> None:
    """Convert tokens and position table to our form; the model's output stays the same.

    In our form the class and distillation tokens have rows in the position table, but registers have none: their rows are
    added to the registers. A distillation token without a head becomes a register.
    """
    tokens = [ours[name].reshape(1, config.dim) for name in ("class_token", "distillation_token") if name in ours]
    registers = ours["registers"].reshape(-1, config.dim) if "registers" in ours else torch.zeros(0, config.dim)
    patches = config.grid[0] * config.grid[1]
    rows = ours.get("position.embedding", torch.zeros(patches, config.dim)).reshape(-1, config.dim)
    before = torch.zeros(len(tokens) + len(registers), config.dim)
    before[: len(rows) - patches] = rows[: len(rows) - patches]
    registers = registers + before[len(tokens) :]
    if len(tokens) == 2 and not config.distillation_token:
        registers = torch.cat([ours.pop("distillation_token").reshape(1, -1) + before[1], registers])
    if "position.embedding" in ours:
        ours["position.embedding"] = torch.cat([before[: config.position_prefix], rows[len(rows) - patches :]])
    if len(registers):
        ours["registers"] = registers


def _canonical(config: ViTConfig) -> ViTConfig:
    conv = "conv" if config.embedding == "linear" else config.embedding
    own_token = config.class_token and "class" not in config.pool
    width = None if config.head_dim and config.head_dim * config.heads == config.dim else config.head_dim
    scale = None if config.layer_scale is None else 1.0
    fields: dict[str, Any] = {"embedding": conv, "class_token": own_token, "head_dim": width, "layer_scale": scale}
    fields["class_position"] = True  # rows of zeros give the same output as no rows
    fields["pool"] = "attention" if config.pools_by_attention and not config.prefix else config.pool
    fields["pool_heads"] = (config.pool_heads or config.heads) if config.pools_by_attention else None
    fields["pool_mlp_dim"] = (config.pool_mlp_dim or config.mlp_dim) if config.pools_by_attention else None
    if not config.is_rotary:
        fields |= {name: ViTConfig.model_fields[name].default for name in ViTConfig.model_fields if name.startswith("rotary_")}
    sides = zip(config.image_size, config.patch_size, strict=True)
    return config.changed(**fields, crop_remainder=any(side % patch for side, patch in sides))


def _share_out(state: Mapping[str, Tensor], config: ViTConfig, layout: Layout) -> dict[str, Tensor]:
    """Return tokens, position table and biases in the layout's form: the inverse of `_settle`."""
    ours = dict(state)
    rows = ours.get("position.embedding")
    first, bare = (
        config.prefix - config.registers,
        not config.class_position and layout.patch_positions and not config.distillation_token,
    )
    if rows is not None and not config.class_position and not bare:
        rows = torch.cat([rows.new_zeros(first, config.dim), rows])
    if rows is not None and layout.register_positions and config.registers and not bare:
        rows = torch.cat([rows[:first], rows.new_zeros(config.registers, config.dim), rows[first:]])
    for name in [name for name in ours if name.endswith(".bias") and layout.place(name, config) is None]:
        bias = ours.pop(name)
        if (
            name == "embedding.projection.bias" and rows is not None and config.embedding_norm in ("none", "tokens")
        ):  # it is on every patch, as its position is
            rows = torch.cat([rows[: len(rows) - math.prod(config.grid)], rows[len(rows) - math.prod(config.grid) :] + bias])
        elif not bias.is_meta and bias.any():
            raise KeyError(f"{name}, which is not zero in this model")
    if rows is not None:
        ours["position.embedding"] = rows
    return ours


GUESSED = ("heads", "rotary_base", "mlp", "norm", "norm_eps", "pool")
"""Fields that change the output and that weights do not show."""


def _guesses(config: ViTConfig, stated: Mapping[str, Any]) -> list[str]:
    sure = {"heads"} if config.qk_norm or config.is_relative else set()
    sure |= set() if config.is_rotary else {"rotary_base"}
    sure |= {"mlp"} if config.mlp == "swiglu" else set()
    sure |= {"pool"} if not (config.prefix if config.pools_by_attention else config.has_class_token) else set()
    return [f"{name} {getattr(config, name)}" for name in GUESSED if name not in {*stated, *sure}]


READING = Reading(
    architecture="ViT",
    fields=_fields,
    choices=CHOICES,
    optional="registers",  # a distillation token can become one
    holds=_holds,
    settle=_settle,
    share_out=_share_out,
    canonical=_canonical,
    guesses=_guesses,
    refuses=_refuses,
)

ViTLayout = partial(Layout, reading=READING, needs=("position.embedding",))
"""A layout of Vision Transformers; by default it needs learned position embeddings."""
