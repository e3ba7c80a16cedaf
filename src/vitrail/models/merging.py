"""The block loop of a Vision Transformer that merges tokens (Bolya et al. 2022, https://arxiv.org/abs/2210.09461)."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.parts.vision.token_reduction import keep_tokens


def merging_blocks(blocks: Iterable[nn.Module], z: Tensor, merged: Sequence[int], *, prefix: int, first: int | None) -> Tensor:
    """Compute all blocks, some of which merge patches; at the end, each patch gets the token that it was merged into.

    Args:
        blocks: from the first to the last.
        z: (B, prefix + N, D).
        merged: number of patches that each block merges into others.
        prefix: number of tokens before the patches; they are never merged.
        first: return only the first so many tokens; the last block then merges nothing.

    Returns:
        (B, prefix + N, D), or (B, first, D).
    """
    sizes = z.new_ones(*z.shape[:2], 1)
    place = torch.arange(z.shape[1], device=z.device).expand(z.shape[0], -1)
    for number, (block, count) in enumerate(zip(blocks, merged, strict=True), 1):
        bias = parts.patches_in(sizes) if any(merged[: number - 1]) else None
        if first is not None and number == len(merged):
            return cast(Tensor, block(z, bias=bias, first=first))
        if not count:
            z = block(z, bias=bias)
            continue
        z, sizes, moved = cast(parts.Block, block).merging(z, sizes, count, prefix=prefix)
        place = moved.gather(1, place)
    return keep_tokens(z, place)
