"""Conversion of a ViT's weights to another image size, patch size, channels and tokens."""

from collections.abc import Callable, Mapping, Set

import torch
from torch import Tensor

from vitrail.models.configs.vit import ViTConfig
from vitrail.parts import Interpolation, adapt_channels, resize_factorised, resize_patches, resize_positions, resize_relative
from vitrail.parts.positions.interpolation import ANTIALIASED

MAY_DIFFER = ViTConfig.training_only | {
    "image_size",
    "patch_size",
    "channels",
    "num_classes",
    "registers",
    "distillation_token",
    "class_position",
    "token_merging",
}
"""Fields that may differ: weights can be converted, or need no change."""
FLAT = {"conv", "linear"}
"""Embeddings that are one matrix product per patch."""
FIRST = (
    "embedding.resnet.root.0.weight",
    "embedding.layers.0.weight",
    "embedding.first.0.weight",
    "embedding.projection.weight",
)
"""Names of the convolution that reads the image; a model has one of them, or the first in this order does."""


def adapted(
    tensors: Mapping[str, Tensor], source: ViTConfig, target: ViTConfig, interpolation: Interpolation
) -> dict[str, Tensor]:
    """Return the parameters of a model of ``source`` converted for one of ``target``; unchanged tensors are not copied.

    Positions are interpolated to the new grid. The patch embedding is resized to another patch size, and adapted to other
    channels, which is approximate for a hybrid, as its filters are standardised afterwards. A new distillation token and
    its position start as copies of the class token's, which has already learned to collect what a classifier needs.
    """
    first = next(name for name in FIRST if name in tensors)
    ours = resized_positions(tensors, source, target, interpolation)
    ours[first] = _first(tensors[first], target, resize=source.embedding in FLAT)
    ours = _with_rows(ours, source, target)
    second = target.distillation_token and not source.distillation_token
    return ours | _second_token(ours, target) if second else ours


def resized_positions(
    tensors: Mapping[str, Tensor], source: ViTConfig, target: ViTConfig, interpolation: Interpolation = ANTIALIASED
) -> dict[str, Tensor]:
    """Return the parameters of a model of ``source``, with its positions interpolated to the grid of ``target``."""
    old, new, how = source.grid, target.grid, {"interpolation": interpolation}
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "position.embedding": lambda table: resize_positions(table, old, new, prefix=source.position_prefix, **how),
        "position.rows": lambda table: resize_factorised(table, new[0], **how),
        "position.columns": lambda table: resize_factorised(table, new[1], **how),
    }

    def resized(name: str, tensor: Tensor) -> Tensor:
        if name.startswith("relative."):
            return resize_relative(tensor, old, new, prefix_entries=3 if source.prefix else 0, **how)
        return changes[name](tensor) if name in changes else tensor

    return {name: resized(name, tensor) for name, tensor in tensors.items()}


def _first(weight: Tensor, target: ViTConfig, *, resize: bool) -> Tensor:
    """Adapt the convolution that reads the image to other channels, and with ``resize`` to another patch size."""
    weight = adapt_channels(weight, target.channels)
    return resize_patches(weight, target.patch_size) if resize else weight


def _with_rows(ours: Mapping[str, Tensor], source: ViTConfig, target: ViTConfig) -> dict[str, Tensor]:
    """Add or remove positions of the class and distillation token; a removed position is added to its token."""
    tokens = [name for name in ("class_token", "distillation_token") if name in ours]
    table = ours.get("position.embedding")
    if source.class_position == target.class_position or table is None or not tokens:
        return dict(ours)
    if target.class_position:
        return {**ours, "position.embedding": torch.cat([table.new_zeros(len(tokens), table.shape[1]), table])}
    moved = {name: ours[name] + row for name, row in zip(tokens, table, strict=False)}
    return {**ours, **moved, "position.embedding": table[len(tokens) :]}


def _second_token(ours: Mapping[str, Tensor], target: ViTConfig) -> dict[str, Tensor]:
    """Return a distillation token and its position as copies of the class token's."""
    second = {"distillation_token": ours["class_token"].clone()} if "class_token" in ours else {}
    tables = [name for name in ("position.embedding", "position.prefix") if name in ours and target.class_position]
    return second | {name: torch.cat([ours[name][:1], ours[name]]) for name in tables}


def without_second_token(tensors: Mapping[str, Tensor], source: ViTConfig) -> dict[str, Tensor]:
    """Return the parameters without the distillation token, its position and its head."""
    ours = {name: tensor for name, tensor in tensors.items() if not name.startswith(("distillation_token", "head_distillation."))}
    tables = [name for name in ("position.embedding", "position.prefix") if name in ours and source.class_position]
    return ours | {name: torch.cat([ours[name][:1], ours[name][2:]]) for name in tables}


def may_differ(source: ViTConfig, target: ViTConfig, *, keep_head: bool) -> Set[str]:
    """Return the fields in which two configurations may differ; see `vitrail.models.base.Model.may_differ`."""
    allowed = MAY_DIFFER | (set() if keep_head else {"head"})
    if {source.embedding, target.embedding} <= FLAT:
        allowed |= {"embedding"}
    else:
        allowed -= {"patch_size"}
    if source.embedding_norm == "patches":  # its norm has a weight for every pixel of a patch
        allowed -= {"patch_size", "channels"}
    if source.embedding == "resnet" and source.resnet_root.startswith("whitened"):  # two filters per value in a patch
        allowed -= {"channels"}
    if not target.position.startswith("learned-1d"):
        allowed -= {"class_position"}
    if source.position == "sincos-1d":  # one more token shifts the positions of the patches
        allowed -= {"distillation_token"}
    if source.distillation_token and keep_head:  # the output is the mean of two heads
        allowed -= {"distillation_token"}
    if source.registers or (source.is_relative and not source.prefix):  # the relative table lacks entries for prefix tokens
        allowed -= {"registers"}
    if (source.layer_scale is None) == (target.layer_scale is None):
        allowed |= {"layer_scale"}
    return allowed
