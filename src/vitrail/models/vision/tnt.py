"""Transformer in Transformer (TNT; Han et al. 2021, https://arxiv.org/abs/2103.00112)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.base import AnySizeModel
from vitrail.models.configs.tnt import TNTConfig


class TNT(AnySizeModel):
    """TNT: images (B, C, H, W) in whole patches to logits (B, classes), or without classes to the class token (B, D).

    Every patch consists of words. Each block attends among the words of a patch, adds their projection to the patch's token,
    and then attends among the patches.
    """

    config: TNTConfig
    first_filters = "embedding.projection.weight"
    sight = "image"
    relative = rotary = None

    def __init__(self, config: TNTConfig):
        super().__init__()
        self.config = c = config
        self.tokens_read = 1
        self.embedding = parts.WordEmbedding(c.channels, c.word_dim, c.patch_size, c.word_stride, across=c.legacy)
        self.word_position = parts.LearnedPosition1d(c.word_grid, c.word_dim, prefix=0)
        self.fold = parts.WordsToPatches(c.words, c.word_dim, c.dim, bias=True, norm_eps=c.norm_eps)
        self.class_token = nn.Parameter(torch.empty(1, 1, c.dim))
        self.position = parts.LearnedPosition1d(c.grid, c.dim, prefix=1)
        self.dropout = parts.Dropout(c.dropout)
        self.blocks = nn.ModuleList(_block(c, index) for index in range(c.depth))
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.add_head(c.dim)
        self.initialize()
        nn.init.normal_(self.class_token, std=0.02)

    def layers(self) -> list[nn.Module]:
        return list(self.blocks)

    def vectors(self, images: Tensor) -> Tensor:
        return self.encode(images, first=self.tokens_read)[:, 0]

    def encode(self, images: Tensor, *, first: int | None = None) -> Tensor:
        """Return the tokens (B, 1 + N, D) of images after the last norm, or only the ``first`` of them.

        Raises:
            ConfigError: a side of the images is not a multiple of the patch.
        """
        self.require_images(images)
        grid = parts.grid_size((images.shape[2], images.shape[3]), self.config.patch_size)
        words = self.word_position(self.embedding(images))  # (B·N, n, d)
        x = self.fold(words, grid[0] * grid[1])  #            (B, N, D)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.dropout(self.position(x, grid))  #           (B, 1 + N, D)
        *blocks, last = self.blocks
        for block in blocks:
            x, words = block(x, words, grid=grid)
        x, _ = last(x, words, grid=grid, first=first)
        return self.norm(x)

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        """Convert parameters to other channels, and positions of patches to another image size."""
        ours, name = super().adapted(tensors, source, target, interpolation), "position.embedding"
        ours[name] = parts.resize_positions(tensors[name], source.grid, target.grid, prefix=1, interpolation=interpolation)
        return ours


def _block(c: TNTConfig, index: int) -> nn.Module:
    branches: dict[str, Any] = {"norm_eps": c.norm_eps, "drop_path": parts.drop_path_rate(c.stochastic_depth, index, c.depth)}

    def layers(dim: int, heads: int) -> tuple[int, nn.Module, nn.Module]:
        attention = parts.Attention(dim, heads, bias=c.qkv_bias, attention_dropout=c.attention_dropout, dropout=c.dropout)
        return dim, attention, parts.FeedForward(dim, int(dim * c.mlp_ratio), dropout=c.dropout)

    inner = parts.Block(*layers(c.word_dim, c.word_heads), **branches)
    fold = parts.WordsToPatches(c.words, c.word_dim, c.dim, bias=c.legacy, each=c.legacy, norm_eps=c.norm_eps)
    return parts.NestedBlock(*layers(c.dim, c.heads), inner=inner, fold=fold, **branches)
