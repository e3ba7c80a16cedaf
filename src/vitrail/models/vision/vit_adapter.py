"""ViT-Adapter (Chen et al. 2023, https://arxiv.org/abs/2205.08534): what a plain ViT needs to answer for every pixel."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.base import on_grid
from vitrail.models.configs.vit import ViTConfig

INTERACTIONS = 4
"""Number of groups that the blocks are split into, with an interaction around each."""


class ViTAdapter(nn.Module):
    """A branch beside a ViT: images and the ViT's blocks to maps (B, D, H / s, W / s) of the strides s = 4, 8, 16 and 32.

    A spatial prior makes tokens of the strides 8, 16 and 32. Before each group of blocks, an injector adds what the patches
    sample of them; its gate γ starts at zero, so that a new adapter changes no token of the ViT. After the group, an extractor
    updates them from the patches.

    Args:
        c: configuration of the ViT.
        heads: heads of the deformable attention.
        ratio: width of its values, divided by D.
        norm: kind of the norms of the maps.
    """

    def __init__(self, c: ViTConfig, *, heads: int, ratio: float, norm: parts.MapNorm):
        super().__init__()
        self.patch_size = c.patch_size
        self.prior = parts.SpatialPrior(c.channels, c.dim, norm=norm)
        self.level = nn.Parameter(torch.empty(3, c.dim))
        nn.init.normal_(self.level)
        deformable = partial(parts.DeformableAttention, c.dim, heads, ratio=ratio)
        self.interactions = nn.ModuleList(
            Interaction(c, deformable, extractors=3 if number == INTERACTIONS - 1 else 1) for number in range(INTERACTIONS)
        )
        self.up = nn.ConvTranspose2d(c.dim, c.dim, 2, stride=2)
        self.norms = nn.ModuleList(parts.map_norm(c.dim, norm) for _ in parts.STRIDES)

    def forward(
        self, images: Tensor, z: Tensor, blocks: Sequence[Callable[[Tensor], Tensor]], *, prefix: int, grid: parts.Grid
    ) -> list[Tensor]:
        """Return the maps.

        Args:
            images: (B, C, H, W) in whole patches.
            z: the tokens that the first block takes, (B, prefix + N, D).
            blocks: the ViT's blocks, (B, prefix + N, D) to (B, prefix + N, D).
            prefix: number of tokens before the patches.
            grid: rows and columns of the patches.
        """
        finest, *levels = self.prior(images)
        sizes = [(level.shape[2], level.shape[3]) for level in levels]
        x = torch.cat([level.flatten(2).mT + own for level, own in zip(levels, self.level, strict=True)], dim=1)  # (B, S, D)
        squares = [(stride, stride) for stride in parts.STRIDES[1:]]
        on_levels = parts.cell_places([(grid, self.patch_size)], squares, images.device)
        on_patches = parts.cell_places(list(zip(sizes, squares, strict=True)), [self.patch_size], images.device)
        outputs: list[Tensor] = []
        interaction: Any
        for number, interaction in enumerate(self.interactions):
            z = interaction.injected(z, x, prefix, grids=sizes, places=on_levels)
            for block in blocks[len(blocks) * number // INTERACTIONS : len(blocks) * (number + 1) // INTERACTIONS]:
                z = block(z)
            x = interaction.extracted(x, z[:, prefix:], sizes, grids=[grid], places=on_patches)
            outputs.append(on_grid(z[:, prefix:], grid))
        coarser = [on_grid(own, size) for own, size in zip(x.split([h * w for h, w in sizes], dim=1), sizes, strict=True)]
        maps = [finest + self.up(coarser[0])[..., : finest.shape[2], : finest.shape[3]], *coarser]
        return [
            norm(own + parts.resize_map(of_vit, (own.shape[2], own.shape[3])))
            for norm, own, of_vit in zip(self.norms, maps, outputs, strict=True)
        ]


class Interaction(nn.Module):
    """An injector before a group of blocks, and extractors after it."""

    def __init__(self, c: ViTConfig, deformable: Callable[..., nn.Module], *, extractors: int):
        super().__init__()
        self.injector = parts.Branch(c.dim, deformable(levels=3), layer_scale=0.0)
        self.extractors = nn.ModuleList(Extractor(c, deformable()) for _ in range(extractors))

    def injected(self, z: Tensor, x: Tensor, prefix: int, **where: Any) -> Tensor:
        """Return tokens (B, prefix + N, D), whose patches sampled the adapter's tokens (B, S, D)."""
        patches = self.injector(z[:, prefix:], context=x, **where)
        return torch.cat([z[:, :prefix], patches], dim=1) if prefix else patches

    def extracted(self, x: Tensor, patches: Tensor, sizes: Sequence[parts.Grid], **where: Any) -> Tensor:
        """Return the adapter's tokens (B, S, D), which sampled the patches (B, N, D)."""
        extractor: Any
        for extractor in self.extractors:
            x = extractor.mlp(extractor.attention(x, context=patches, **where), sizes=sizes)
        return x


class Extractor(nn.Module):
    """Two branches on the adapter's tokens: deformable attention to the patches, and an MLP with a convolution."""

    def __init__(self, c: ViTConfig, attention: nn.Module):
        super().__init__()
        self.attention = parts.Branch(c.dim, attention)
        self.mlp = parts.Branch(c.dim, LevelsFeedForward(c.dim, c.dim // 4, dropout=c.dropout), drop_path=c.stochastic_depth)


class LevelsFeedForward(parts.ConvFeedForward):
    """`ConvFeedForward` on the grids of several levels, row by row and one after the other: (B, S, D) to (B, S, D)."""

    def forward(self, x: Tensor, *, sizes: Sequence[parts.Grid] = ()) -> Tensor:
        levels = zip(x.split([rows * columns for rows, columns in sizes], dim=1), sizes, strict=True)
        return torch.cat([self.whole(level.unflatten(1, size)).flatten(1, 2) for level, size in levels], dim=1)
