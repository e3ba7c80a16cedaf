"""Kinds of keys for Vision Transformers, and checks for features that a layout cannot hold."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.models.configs.vit import ViTConfig
from vitrail.weights.keys import Joined, Key, Part, Shape


def head_width(config: ViTConfig) -> int:
    """Return the width of a head."""
    return config.head_dim or config.dim // config.heads


def own_heads(config: ViTConfig) -> str:
    """Return a few words if the total width of a model's attention heads differs from ``dim``; else an empty text."""
    return "heads · head_dim other than dim" if (config.head_dim or 0) * config.heads not in (0, config.dim) else ""


def unusual_parts(config: ViTConfig) -> str:
    """Return, in a few words, a feature that the ViT of most libraries lacks; empty if the model has none."""
    if config.norm_kind != "layer" or config.norm != "pre" or config.attention_norm or config.mlp_norm:
        return "norms other than pre-LayerNorm"
    return "" if config.linear_bias else "layers without a bias"


def not_plain(config: ViTConfig) -> str:
    """Return the result of `unusual_parts`, otherwise of `own_heads`."""
    return unusual_parts(config) or own_heads(config)


def not_plain_or_no_bias(config: ViTConfig) -> str:
    """Return the result of `not_plain`, otherwise a few words for queries, keys and values without a bias."""
    return not_plain(config) or ("" if config.qkv_bias else "query, key and value projections without a bias")


def not_square(config: ViTConfig) -> str:
    """Return a few words if images or patches are not square; else an empty text."""
    sides = {len(set(config.image_size)), len(set(config.patch_size))}
    return "images or patches that are not square" if 2 in sides else ""


def thirds(theirs: str) -> dict[str, Key]:
    """Return the rows of a cross-attention whose queries, keys and values they store in one tensor."""
    return {
        f"{name}.{part}": Part(f"{theirs}_{part}", first=first, last=last)
        for name, first, last in (("query", 0, 1), ("key_value", 1, 3))
        for part in ("weight", "bias")
    }


@dataclass(frozen=True)
class Turned(Joined):
    """Queries, keys and values, or norms of queries and keys, whose rotary pairs are in another order than ours.

    Our order is ``[rows; columns]``, and the two numbers of a rotated pair are half a head apart. Attention scores do not
    change if queries and keys are reordered in the same way.
    """

    interleaved: bool = True
    """True if the two numbers of a pair are adjacent."""
    columns_first: bool = False
    """True if the pairs for columns come before those for rows."""

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        return self._reordered(torch.cat(tensors), config, self._order(config))

    def write(self, tensor: Tensor, config: ViTConfig) -> list[Tensor]:
        return super().write(self._reordered(tensor, config, self._order(config).argsort()), config)

    def _order(self, config: ViTConfig) -> Tensor:
        width = head_width(config)
        planes = torch.arange(width // 2)
        if self.columns_first:
            planes = planes.roll(width // 4)
        pairs = (2 * planes, 2 * planes + 1) if self.interleaved else (planes, planes + width // 2)
        return torch.cat(pairs)

    def _reordered(self, tensor: Tensor, config: ViTConfig, order: Tensor) -> Tensor:
        if not config.is_rotary:
            return tensor
        if len(tensor) == len(order):  # of one head
            return tensor[order]
        *turned, values = (part.unflatten(0, (config.heads, -1)) for part in tensor.chunk(3))
        return torch.cat([*(part[:, order] for part in turned), values]).flatten(0, 1)


@dataclass(frozen=True)
class WithoutKeyBias(Turned):
    """The biases of queries and values, for a library whose keys have no bias."""

    exact: bool = False
    """True to refuse every bias of the keys when writing. By default one is dropped where it cannot change the output."""

    def shape(self, shapes: list[Shape]) -> Shape:
        if len(set(shapes)) > 1:
            raise ValueError("biases that do not fit together")
        return (shapes[0][0] * 3,)

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        query, value = tensors
        return super().read([query, torch.zeros_like(query), value], config)

    def write(self, tensor: Tensor, config: ViTConfig) -> list[Tensor]:
        query, key, value = tensor.chunk(3)
        changes = self.exact or config.is_rotary or config.qk_norm
        if changes and not key.is_meta and key.any():
            raise KeyError("a bias of the keys")
        return [query, value]


@dataclass(frozen=True)
class Flat(Key):
    """The matrix E for patches flattened as (P_h, P_w, C); ours are (C, P_h, P_w)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        outputs, values = shapes[0]
        return (outputs, *_patch_of(values))

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        return tensors[0].unflatten(1, (*config.patch_size, config.channels)).permute(0, 3, 1, 2).contiguous()

    def write(self, tensor: Tensor, config: ViTConfig) -> list[Tensor]:
        return [tensor.permute(0, 2, 3, 1).flatten(1)]


def _patch_of(values: int) -> Shape:
    """Return channels, height and width of a square patch with this many values, preferably of three channels."""
    channels = next((c for c in (3, 1, 4, 2) if values % c == 0 and math.isqrt(values // c) ** 2 == values // c), 1)
    return channels, math.isqrt(values // channels), math.isqrt(values // channels)
