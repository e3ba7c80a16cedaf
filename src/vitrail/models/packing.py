"""Sequence packing: images of different sizes in one sequence of tokens (NaViT; Dehghani et al. 2023, https://arxiv.org/abs/2307.06304)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.models.vision.vit import ViT, of_each_block
from vitrail.parts.attention.dot_product import Group


def forward_packed(model: ViT, images: Sequence[Tensor]) -> Tensor:
    """Return the logits (B, classes) of images (C, H, W) of any sizes, equal to those of each image alone.

    The tokens of all images are concatenated to one sequence without padding; tokens attend only to tokens of their own
    image. Positions are interpolated to each image's grid.

    Raises:
        ConfigError: a side is not a multiple of the patch; the model merges tokens, outputs maps, or is in training with
            stochastic depth or patch dropout.
    """
    c = model.config
    if type(model) is not ViT:
        what = f"a {type(model).__name__} returns maps, whose sizes depend on the images' sizes"
        raise ConfigError(what, where="forward_packed", hint="call model.at_any_size() with images of one size at a time")
    if any(c.merged) or (model.training and (c.stochastic_depth or c.patch_dropout)):
        raise ConfigError(
            "stochastic depth, patch dropout and token merging act on samples of a batch, and a packed sequence is one sample",
            where="forward_packed",
            hint="call model.eval() first, and build the model without token_merging",
        )
    same: dict[torch.Size, list[int]] = defaultdict(list)
    for number, image in enumerate(images):
        same[image.shape].append(number)
    tokens, sizes, biases, rotations = [], [], [], []
    for numbers in same.values():
        z, attention = model.embed(torch.stack([images[number] for number in numbers]), any_size=True)
        tokens.append(z.flatten(0, 1))
        sizes.append((len(z), z.shape[1]))
        biases.append([options.get("bias") for options in of_each_block(attention, c.depth)])
        rotations.append([table.repeat(len(z), 1) for table in attention.get("rotation", ())])
    options: dict[str, Any] = {}
    if model.rotary is not None:
        options["rotation"] = tuple(torch.cat(tables) for tables in zip(*rotations, strict=True))
    x = torch.cat(tokens)[None]  # (1, T, D)
    for number, block in enumerate(model.blocks):
        groups = [Group(*size, bias[number]) for size, bias in zip(sizes, biases, strict=True)]
        x = block(x, groups=groups, **options)
    x = x if c.final_norm == "pooled" else model.norm(x)
    parts = x[0].split([count * length for count, length in sizes])
    found = torch.cat([model.forward_head(part.unflatten(0, size)) for part, size in zip(parts, sizes, strict=True)])
    order = torch.tensor([number for numbers in same.values() for number in numbers], device=found.device)
    return found[order.argsort()]
