"""Fewer tokens for less computation: merging, and dropping at random."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts.positions.schemes import Rotation


def merge_tokens(x: Tensor, keys: Tensor, sizes: Tensor, count: int, *, prefix: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Merge patch tokens by ToMe's bipartite matching (Bolya et al. 2022, https://arxiv.org/abs/2210.09461).

    Each even patch is paired with the odd patch whose key is most similar by cosine. The ``count`` most similar pairs are
    merged: with sizes s, the merged token is the mean of x weighed by s, and its size the sum of s.

    Args:
        x: (B, N, D).
        keys: (B, N, D_K), whose cosine measures similarity.
        sizes: number of patches in each token, (B, N, 1).
        count: number of patches to merge into others; at most half of them.
        prefix: number of tokens before the patches; they are never merged.

    Returns:
        Tokens (B, N − count, D): the prefix, then the even patches that were not merged, most similar first, then the odd
        patches in order. Their sizes (B, N − count, 1), and the new index of every old token, (B, N).
    """
    patches = x.shape[1] - prefix
    if patches < 2:  # nothing to merge with
        return x, sizes, torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
    count, even, odd = min(count, patches // 2), (patches + 1) // 2, patches // 2
    keys = F.normalize(keys[:, prefix:].float(), dim=-1)
    best, partner = (keys[:, ::2] @ keys[:, 1::2].mT).max(dim=-1)  # (B, even)
    order = best.argsort(dim=1, descending=True)
    going, staying = order[:, :count], order[:, count:]
    into = partner.gather(1, going)[:, None] == torch.arange(odd, device=x.device)[:, None]  # (B, odd, count)

    def summed(t: Tensor) -> Tensor:
        """Return the prefix, the remaining even patches, and the odd patches plus those merged into them."""
        evens = t[:, prefix::2]
        grown = t[:, prefix + 1 :: 2] + into.to(t.dtype) @ keep_tokens(evens, going)
        return torch.cat([t[:, :prefix], keep_tokens(evens, staying), grown], dim=1)

    rank, kept = order.argsort(dim=1), prefix + even - count
    places = [
        torch.arange(prefix, device=x.device).expand(x.shape[0], -1),
        torch.where(rank < count, kept + partner, prefix + rank - count),
        torch.arange(kept, kept + odd, device=x.device).expand(x.shape[0], -1),
    ]
    place = torch.cat(places, dim=1)[:, _in_turns(prefix, patches).to(x.device)]
    new_sizes = summed(sizes)
    return summed(x * sizes) / new_sizes, new_sizes, place


def _in_turns(prefix: int, patches: int) -> Tensor:
    """Return the index of each token once even patches are moved before odd ones: (prefix + patches,)."""
    turns = torch.arange(patches)
    return torch.cat([torch.arange(prefix), prefix + turns // 2 + (turns % 2) * ((patches + 1) // 2)])


def random_keep(batch: int, patches: int, *, prefix: int, drop: float, device: torch.device) -> Tensor:
    """Sample which tokens patch dropout keeps (Liu et al. 2022, https://arxiv.org/abs/2208.07220): indices for each sample.

    Every prefix token and a random fraction ``1 - drop`` of the patches, at least one, in order: (B, prefix + kept).
    """
    kept = max(1, round(patches * (1 - drop)))
    chosen = torch.rand(batch, patches, device=device).argsort(dim=1)[:, :kept].sort(dim=1).values
    always = torch.arange(prefix, device=device).expand(batch, -1)
    return torch.cat([always, chosen + prefix], dim=1)


def keep_tokens(x: Tensor, kept: Tensor) -> Tensor:
    """Return the tokens of (B, N, D) at the indices ``kept`` (B, K): (B, K, D)."""
    first = x.shape[1] * torch.arange(x.shape[0], device=x.device)[:, None]  # each sample's first token in the flat batch
    return x.flatten(0, 1).index_select(0, (first + kept).flatten()).unflatten(0, kept.shape)


def keep_bias(bias: Tensor, kept: Tensor) -> Tensor:
    """Return an attention bias (heads, N, N) for the kept tokens of each sample: (B, heads, K, K)."""
    return bias[:, kept[:, :, None], kept[:, None, :]].transpose(0, 1)


def keep_rotation(rotation: Rotation, kept: Tensor) -> Rotation:
    """Return rotations (N, D_h) of the kept tokens of each sample: (B, 1, K, D_h), the same for all heads."""
    cos, sin = (table[kept][:, None] for table in rotation)
    return cos, sin


def keep_attention(attention: dict[str, Any], kept: Tensor) -> dict[str, Any]:
    """Return the attention's options, a bias (or one for each block) or a rotation, for the kept tokens (B, K)."""
    found = dict(attention)
    if "bias" in found:
        bias = found["bias"]
        found["bias"] = tuple(keep_bias(own, kept) for own in bias) if isinstance(bias, tuple) else keep_bias(bias, kept)
    if "rotation" in found:
        found["rotation"] = keep_rotation(found["rotation"], kept)
    return found
