"""Fewer tokens for less work."""

import torch
from torch import Tensor

from vitrail.parts.positions import Rotation


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
