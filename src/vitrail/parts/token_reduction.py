"""Fewer tokens for less work."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts.positions import Rotation


def merge_tokens(x: Tensor, keys: Tensor, sizes: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Token merging (Bolya et al. 2022, https://arxiv.org/abs/2210.09461): every second token offers itself to the others.

    Each finds among them the one whose key has the most similar direction; the ``count`` best pairs become one token, the mean
    of all the patches in it.

    Args:
        x: (B, N, D).
        keys: (B, N, D_h), by which tokens are alike.
        sizes: (B, N, 1), how many patches each token stands for.
        count: tokens to be merged away; half of them at most.

    Returns:
        Tokens (B, N − count, D), their sizes (B, N − count, 1), and the place (B, N) of every old token among the new ones.
    """
    keys = F.normalize(keys.float(), dim=-1)
    best, partner = (keys[:, ::2] @ keys[:, 1::2].mT).max(dim=-1)  # (B, ⌈N/2⌉)
    count = min(count, x.shape[1] // 2)
    order = best.argsort(dim=1, descending=True)
    merged, kept = order[:, :count], order[:, count:]
    into = partner.gather(1, merged)

    def joined(values: Tensor) -> Tensor:
        """Those that were kept, then the others with what was merged into them: a sum."""
        even, odd = values[:, ::2], values[:, 1::2]
        given = keep_tokens(even, merged)
        return torch.cat([keep_tokens(even, kept), odd.scatter_add(1, into[..., None].expand_as(given), given)], dim=1)

    left = kept.shape[1]
    rank = order.argsort(dim=1)
    place = rank.new_empty(x.shape[:2])
    place[:, ::2] = torch.where(rank < count, left + partner, rank - count)
    place[:, 1::2] = left + torch.arange(x.shape[1] // 2, device=x.device)
    new_sizes = joined(sizes)
    return joined(x * sizes) / new_sizes, new_sizes, place


def random_keep(batch: int, patches: int, *, prefix: int, drop: float, device: torch.device) -> Tensor:
    """Patch dropout (Liu et al. 2022, https://arxiv.org/abs/2208.07220): indices of the tokens each sample keeps.

    Every prefix token and a random ``1 - drop`` of the patches, at least one, in order: (B, prefix + kept).
    """
    kept = max(1, round(patches * (1 - drop)))
    chosen = torch.rand(batch, patches, device=device).argsort(dim=1)[:, :kept].sort(dim=1).values
    always = torch.arange(prefix, device=device).expand(batch, -1)
    return torch.cat([always, chosen + prefix], dim=1)


def keep_tokens(x: Tensor, kept: Tensor) -> Tensor:
    """The tokens of (B, N, D) at the indices ``kept`` (B, K): (B, K, D)."""
    return x.gather(1, kept[..., None].expand(-1, -1, x.shape[-1]))


def keep_bias(bias: Tensor, kept: Tensor) -> Tensor:
    """An attention bias (heads, N, N) for the kept tokens of each sample: (B, heads, K, K)."""
    return bias[:, kept[:, :, None], kept[:, None, :]].transpose(0, 1)


def keep_rotation(rotation: Rotation, kept: Tensor) -> Rotation:
    """Rotations (N, D_h) for the kept tokens of each sample: (B, 1, K, D_h), the same for all heads."""
    cos, sin = (table[kept][:, None] for table in rotation)
    return cos, sin
