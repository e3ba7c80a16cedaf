"""The Tokens-to-Token ViT (Yuan et al. 2021, https://arxiv.org/abs/2101.11986)."""

from collections.abc import Mapping, Set
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.base import AnySizeModel
from vitrail.models.configs.t2t import T2TConfig


class T2T(AnySizeModel):
    """A T2T-ViT: images (B, C, H, W) to logits (B, classes), or without classes to the class token (B, D).

    Soft splits with attention between them reduce the number of tokens; a narrow and deep ViT then processes
    ``[class token; tokens row by row]``.
    """

    config: T2TConfig
    sight = "image"
    tokens_read = 1

    def __init__(self, config: T2TConfig):
        super().__init__()
        self.config = c = config
        self.embedding = _embedding(c)
        self.class_token = nn.Parameter(torch.zeros(1, 1, c.dim))
        self.position = parts.KeptPosition(c.grid, c.dim, prefix=c.prefix)
        self.dropout = parts.Dropout(c.dropout)
        self.blocks = nn.ModuleList(_block(c, index) for index in range(c.depth))
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.pool = parts.ClassTokenPooling()
        self.add_head(c.dim)
        self.initialize()
        nn.init.normal_(self.class_token, std=0.02)

    def layers(self) -> list[nn.Module]:
        return list(self.blocks)

    def filters(self) -> Tensor:
        side, layers = self.config.patch_sizes[0], self.embedding.layers
        first = cast(parts.TokenLayer, layers[0]).mixer.qkv if layers else self.embedding.projection
        return first.weight.unflatten(1, (self.config.channels, side, side))

    def vectors(self, images: Tensor) -> Tensor:
        return self.pool(self.encode(images, first=self.tokens_read))

    def encode(self, images: Tensor, *, first: int | None = None) -> Tensor:
        """Return the tokens (B, 1 + N, D) of images after the last norm, or only the ``first`` of them."""
        self.require_images(images)
        x = self.embedding(images.permute(0, 2, 3, 1))  # (B, rows, columns, D)
        z = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x.flatten(1, 2)], dim=1)
        z = self.dropout(self.position(z, (x.shape[1], x.shape[2])))  # (B, 1 + N, D)
        *blocks, last = self.blocks
        for block in blocks:
            z = block(z)
        return self.norm(last(z, first=first))

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        """Return the parameters, with positions interpolated to another image size."""
        name = "position.embedding"
        table = parts.resize_positions(tensors[name], source.grid, target.grid, prefix=source.prefix, interpolation=interpolation)
        return {**tensors, name: table}

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return super().may_differ(source, target, keep_head=keep_head) - {"channels"}


def _embedding(c: T2TConfig) -> parts.TokensToToken:
    """Build soft splits with a token layer between each two; ``seen`` are the input widths of the layers."""
    splits = [parts.SoftSplit(*numbers) for numbers in zip(c.patch_sizes, c.strides, c.paddings, strict=True)]
    *seen, last = (
        width * side**2 for width, side in zip([c.channels] + [c.token_dim] * (len(splits) - 1), c.patch_sizes, strict=True)
    )
    return parts.TokensToToken(splits, [_token_layer(c, width) for width in seen], last, c.dim)


def _token_layer(c: T2TConfig, width: int) -> parts.TokenLayer:
    sizes: dict[str, Any] = {"query_dim": c.token_dim, "output_dim": c.token_dim, "value_skip": True, "dropout": c.token_dropout}
    if c.token_mixer == "performer":
        mixer: parts.Attention = parts.KernelAttention(width, 1, features=c.random_features, **sizes)
    else:
        mixer = parts.Attention(width, 1, bias=False, scale=width**-0.5, **sizes)
    mlp = parts.FeedForward(c.token_dim, c.token_dim, dropout=c.token_dropout, hidden_dropout=0.0)
    return parts.TokenLayer(width, c.token_dim, mixer, mlp, norm_eps=c.norm_eps)


def _block(c: T2TConfig, index: int) -> nn.Module:
    attention = parts.Attention(
        c.dim, c.heads, bias=c.qkv_bias, scale=c.dim**-0.5 if c.attention_scale == "width" else None,
        attention_dropout=c.attention_dropout, dropout=c.dropout,
    )  # fmt: skip
    mlp = parts.FeedForward(c.dim, c.mlp_dim, dropout=c.dropout)
    drop_path = parts.drop_path_rate(c.stochastic_depth, index, c.depth)
    return parts.Block(c.dim, attention, mlp, norm_eps=c.norm_eps, drop_path=drop_path)
