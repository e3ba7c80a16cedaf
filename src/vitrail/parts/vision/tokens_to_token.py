"""Tokens-to-token: neighbours are merged into one token, step by step (Yuan et al. 2021, https://arxiv.org/abs/2101.11986).

Tokens keep their grid here: (B, H, W, D).
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.attention.attention import Attention
from vitrail.parts.block import Branch
from vitrail.parts.feed_forward import FeedForward
from vitrail.parts.vision.patches import Point


class SoftSplit(nn.Module):
    """Overlapping patches, flattened: (B, H, W, C) to (B, H', W', C·k²), the k² values of each channel together.

    Args:
        patch_size: side k of a patch.
        stride: distance of two patches.
        padding: zeros on every side; more at the bottom and right if the padded side is shorter than a patch.
    """

    def __init__(self, patch_size: int, stride: int, padding: int):
        super().__init__()
        self.patch_size, self.stride, self.padding = patch_size, stride, padding

    @property
    def first_middle(self) -> float:
        """Centre of the first patch along a side, counted from the first token."""
        return (self.patch_size - 1) / 2 - self.padding

    def forward(self, x: Tensor) -> Tensor:
        k, p = self.patch_size, self.padding
        rows, columns = (p + max(0, k - 2 * p - side) for side in x.shape[1:3])
        x = F.pad(x, (0, 0, p, columns, p, rows))
        return x.unfold(1, k, self.stride).unfold(2, k, self.stride).flatten(3)  # (B, H', W', C, k, k) to (B, H', W', C·k²)


class TokenLayer(nn.Module):
    """Attention and MLP between two splits, ``T' = MLP(MSA(T))``: (B, H, W, C) to (B, H, W, D).

    Args:
        channels: width C.
        mixer: attention that maps (B, N, C) to (B, N, D). It has no residual connection around it, since C and D differ.
        mlp: MLP of width D.
        norm_eps: epsilon of the norms.
    """

    def __init__(self, channels: int, dim: int, mixer: Attention, mlp: FeedForward, *, norm_eps: float = 1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=norm_eps)
        self.mixer = mixer
        self.mlp = Branch(dim, mlp, norm_eps=norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.mlp(self.mixer(self.norm(x).flatten(1, 2)))
        return tokens.unflatten(1, x.shape[1:3])


class TokensToToken(nn.Module):
    """Split, mix, split, mix, … split and project: images (B, H, W, C) to tokens (B, rows, columns, D).

    Args:
        splits: soft splits, one more than ``layers``.
        layers: layers between the splits.
        channels: output width of the last split.
        dim: width D.
    """

    def __init__(self, splits: Sequence[SoftSplit], layers: Sequence[TokenLayer], channels: int, dim: int):
        super().__init__()
        self.splits, self.layers = nn.ModuleList(splits), nn.ModuleList(layers)
        self.projection = nn.Linear(channels, dim)

    @property
    def first_middle(self) -> Point:
        """Centre of the first token's receptive field in the image, after all splits."""
        middle, step = 0.0, 1
        for split in self.splits:
            assert isinstance(split, SoftSplit)
            middle, step = middle + step * split.first_middle, step * split.stride
        return middle, middle

    def forward(self, x: Tensor) -> Tensor:
        *splits, last = self.splits
        for split, layer in zip(splits, self.layers, strict=True):
            x = layer(split(x))
        return self.projection(last(x))
