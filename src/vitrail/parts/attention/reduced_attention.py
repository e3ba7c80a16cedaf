"""Attention whose keys and values come from a coarser grid than its queries. Tokens keep their grid here: (B, H, W, D)."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.attention.attention import Attention
from vitrail.parts.positions.interpolation import Grid
from vitrail.parts.vision.stage import GridEmbedding


class ReducedAttention(nn.Module):
    """``Attention(Q, SR(K), SR(V))``: (B, H, W, D) to (B, H, W, D) (Wang et al. 2021, https://arxiv.org/abs/2102.12122).

    Every token attends to the whole image, in which R² tokens are merged into one: there are N·N/R² scores instead of N².

    Args:
        dim: width D.
        heads: number of heads.
        reduction: makes the coarser grid of width D. With None, tokens need no grid: (B, N, D) to (B, N, D).
        options: as in `Attention`.
    """

    def __init__(self, dim: int, heads: int, reduction: nn.Module | None, **options: Any):
        super().__init__()
        self.reduction = reduction or nn.Identity()
        self.attention = Attention(dim, heads, context_dim=dim, **options)

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        context = self.reduction(x).flatten(1, -2)  # (B, N_X, D)
        result: Tensor = self.attention(x.flatten(1, -2), context, **kwargs)  # (B, N, D)
        return result if x.ndim == 3 else result.unflatten(1, x.shape[1:3])

    def places(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return row and column of each query, (N, 2), and of the centre of the patches behind each key, (N_X, 2)."""
        queries = torch.cartesian_prod(*(torch.arange(side, dtype=torch.float32) for side in grid))
        if isinstance(self.reduction, nn.Identity):
            return queries, queries
        middles = cast(GridEmbedding, self.reduction).middles
        return queries, torch.cartesian_prod(*(middles(side) for side in grid))


class PooledReduction(GridEmbedding):
    """Average pooling of a grid of any size to ``side``² means, ``GELU(LN(W mean))``: (B, H, W, D) to (B, side, side, D).

    With it the cost of attention grows linearly with the number of tokens (Wang et al. 2022,
    https://arxiv.org/abs/2106.13797, section 3.1).
    """

    def __init__(self, dim: int, *, side: int = 7, norm_eps: float = 1e-5):
        super().__init__(dim, dim, 1, norm_eps=norm_eps)
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), self.side).permute(0, 2, 3, 1)
        return F.gelu(super().forward(pooled))

    def middles(self, side: int) -> Tensor:
        bins = torch.arange(self.side)
        return ((bins * side) // self.side + -(-(bins + 1) * side // self.side) - 1) / 2
