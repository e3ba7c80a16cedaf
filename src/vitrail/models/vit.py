"""The Vision Transformer (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.errors import ConfigError
from vitrail.models.config import ViTConfig
from vitrail.parts.token_reduction import keep_bias, keep_rotation, keep_tokens, random_keep


@dataclass(frozen=True)
class Features:
    """What the encoder says of each part of an image."""

    class_token: Tensor | None
    """(B, D), or None in a model without one."""
    distillation_token: Tensor | None
    """(B, D), or None in a model without one."""
    registers: Tensor
    """(B, registers, D)."""
    patches: Tensor
    """(B, rows, columns, D)."""


class ViT(nn.Module):
    """Images (B, C, H, W) to logits (B, classes), or without classes to the pooled vector (B, D).

    Tokens are ordered ``[class token; distillation token; registers; patches row by row]``.
    """

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.config = c = config
        self.tokens_read = 1 + c.distillation_token if c.pool == "class" else None  # by pool and heads; None: all of them
        self.embedding = _embedding(c)
        self.class_token = nn.Parameter(torch.zeros(1, 1, c.dim)) if c.has_class_token else None
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, c.dim)) if c.distillation_token else None
        self.registers = nn.Parameter(torch.zeros(1, c.registers, c.dim)) if c.registers else None
        self.position = _position(c)
        self.relative = parts.RelativePositionBias(c.grid, c.heads, prefix=c.prefix) if c.position == "relative" else None
        self.rotary = (
            parts.RotaryPosition2d(c.grid, c.head_dim or c.dim // c.heads, prefix=c.prefix) if c.position == "rotary" else None
        )
        self.embedding_norm = nn.LayerNorm(c.dim, eps=c.norm_eps) if c.embedding_norm == "tokens" else nn.Identity()
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(_block(c, i) for i in range(c.depth))
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.pool = _pool(c)
        self.head = _head(c)
        self.head_distillation = _head(c) if c.distillation_token else None
        self.apply(_initialize)
        for head in (self.head, self.head_distillation):
            if head is not None and c.num_classes:
                nn.init.normal_(last_linear(head).weight, std=0.02)
        for token in (self.class_token, self.distillation_token, self.registers):
            if token is not None:
                nn.init.normal_(token, std=0.02)

    def forward(self, images: Tensor, *, separate: bool = False) -> Any:
        """(B, C, H, W) to logits (B, classes).

        With a distillation token they are the mean of both heads' (Touvron et al. 2021, https://arxiv.org/abs/2012.12877);
        ``separate`` then gives the pair (class logits, distillation logits), each (B, classes), for a loss on each.
        """
        return self.read_out(self.encode(images, first=self.tokens_read), separate=separate)

    def read_out(self, z: Tensor, *, separate: bool = False) -> Any:
        """What `forward` makes of the encoder's tokens (B, prefix + N, D), or of the first ``tokens_read``."""
        logits = self.head(self.pooled(z))
        if self.head_distillation is None:
            return logits
        distilled = z[:, 1] if self.config.final_norm == "tokens" else self.norm(z[:, 1])
        pair = logits, self.head_distillation(distilled)
        return pair if separate else (pair[0] + pair[1]) / 2

    def pooled(self, z: Tensor) -> Tensor:
        """What the head reads of the encoder's tokens (B, prefix + N, D), or of the first ``tokens_read``: (B, D)."""
        vector: Tensor = self.pool(z)
        return self.norm(vector) if self.config.final_norm == "pooled" else vector

    def encode(self, images: Tensor, *, first: int | None = None) -> Tensor:
        """Equations (1) to (4): (B, C, H, W) to (B, prefix + N, D).

        The final LayerNorm is on all tokens, unless the configuration has it on the pooled vector alone. With ``first`` the
        last block may leave out the tokens behind the first so many, which it does not need for those: (B, first, D).
        """
        return self.transform(*self.embed(images), first=first)

    def transform(self, z: Tensor, attention: dict[str, Any], *, first: int | None = None) -> Tensor:
        """Equations (2) to (4): what `encode` makes of the result of `embed`."""
        if any(self.config.merged) and not self.training:
            z = self._merging_blocks(z, first)
        else:
            *before, last = self.blocks
            for block in before:
                z = block(z, **attention)  # (B, prefix + N, D)  equations (2), (3)
            z = last(z, **attention, first=first)
        return z if self.config.final_norm == "pooled" else self.norm(z)  # equation (4)

    def _merging_blocks(self, z: Tensor, first: int | None) -> Tensor:
        """All blocks, some of which merge patches; in the end every patch has the token that it went into: (B, prefix + N, D).

        Or the first tokens alone, (B, first, D): the last block has nothing to merge then.
        """
        sizes = z.new_ones(*z.shape[:2], 1)
        place = torch.arange(z.shape[1], device=z.device).expand(z.shape[0], -1)
        for number, (block, count) in enumerate(zip(self.blocks, self.config.merged, strict=True), 1):
            bias = parts.patches_in(sizes) if any(self.config.merged[: number - 1]) else None
            if first is not None and number == self.config.depth:
                return cast(Tensor, block(z, bias=bias, first=first))
            if not count:
                z = block(z, bias=bias)
                continue
            z, sizes, moved = cast(parts.Block, block).merging(z, sizes, count, prefix=self.config.prefix)
            place = moved.gather(1, place)
        return keep_tokens(z, place)

    def embed(self, images: Tensor, position: Tensor | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Equation (1), ``z_0 = [x_class; x_p^1 E; …; x_p^N E] + E_pos``: (B, prefix + N, D).

        Beside it what every attention needs to know of positions: a bias, a rotation, or nothing. Images of another size come
        with their own E_pos, (prefix + N, D), in ``position``.
        """
        if position is None:
            self._check(images)
        z = self.embedding(images)  # (B, N, D)
        first = [token for token in (self.class_token, self.distillation_token) if token is not None]
        z = torch.cat([*(token.expand(z.shape[0], -1, -1) for token in first), z], dim=1)  # (B, 1 + N, D)
        z = self.position(z) if position is None else z + position
        if self.registers is not None:  # after the class token and without a position, as their authors have it
            z = torch.cat([z[:, : len(first)], self.registers.expand(z.shape[0], -1, -1), z[:, len(first) :]], dim=1)
        z = self.dropout(self.embedding_norm(z))  # (B, prefix + N, D)
        attention: dict[str, Any] = {}
        if self.relative is not None:
            attention["bias"] = self.relative()
        if self.rotary is not None:
            attention["rotation"] = self.rotary()
        if self.training and self.config.patch_dropout:
            return self._drop_patches(z, attention)
        return z, attention

    def features(self, images: Tensor) -> Features:
        """The encoder's tokens by name and place; of a model in evaluation mode, if it drops patches in training."""
        if self.training and self.config.patch_dropout:
            raise ConfigError(
                "features need every patch, and patch dropout leaves some out", where="features", hint="call model.eval() first"
            )
        z, prefix = self.encode(images), self.config.prefix
        return Features(
            class_token=z[:, 0] if self.class_token is not None else None,
            distillation_token=z[:, 1] if self.distillation_token is not None else None,
            registers=z[:, prefix - self.config.registers : prefix],
            patches=z[:, prefix:].unflatten(1, self.config.grid),
        )

    def _drop_patches(self, z: Tensor, attention: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        c = self.config
        kept = random_keep(z.shape[0], math.prod(c.grid), prefix=c.prefix, drop=c.patch_dropout, device=z.device)
        if "bias" in attention:
            attention["bias"] = keep_bias(attention["bias"], kept)
        if "rotation" in attention:
            attention["rotation"] = keep_rotation(attention["rotation"], kept)
        return keep_tokens(z, kept), attention

    def _check(self, images: Tensor) -> None:
        expected = (self.config.channels, *self.config.image_size)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise ConfigError(
                f"images have shape {tuple(images.shape)}, the model takes (batch, {', '.join(map(str, expected))})",
                where="model input",
                hint="resize the images, or build the model with their image_size and channels",
            )


def last_linear(head: nn.Module) -> nn.Linear:
    """The layer of a head that decides how many classes there are."""
    return [module for module in head.modules() if isinstance(module, nn.Linear)][-1]


def _embedding(c: ViTConfig) -> nn.Module:
    if c.embedding == "stem":
        return parts.ConvStem(c.channels, c.dim, c.patch_size)
    if c.embedding == "pooled-stem":
        return parts.PooledStem(c.channels, c.dim, c.patch_size)
    if c.embedding == "resnet":
        resnet = parts.ResNet(c.channels, c.resnet_depths, width=c.resnet_width, root=c.resnet_root)
        return parts.HybridEmbedding(resnet, c.dim, c.patch_size)
    norm = c.embedding_norm == "patches"
    return parts.PatchEmbedding(c.channels, c.dim, c.patch_size, method=c.embedding, norm=norm, norm_eps=c.norm_eps)


def _position(c: ViTConfig) -> nn.Module:
    """What is added to class token and patches; the identity where positions enter elsewhere or not at all."""
    added: dict[str, Callable[..., nn.Module]] = {
        "learned-1d": parts.LearnedPosition1d,
        "learned-2d": parts.LearnedPosition2d,
        "sincos-1d": parts.sincos_position_1d,
        "sincos-2d": parts.sincos_position_2d,
        "sincos-2d-simple": partial(parts.sincos_position_2d, endpoint=True),
    }
    if c.position not in added:
        return nn.Identity()
    return added[c.position](c.grid, c.dim, prefix=c.prefix - c.registers)


def _block(c: ViTConfig, index: int) -> nn.Module:
    attention = parts.Attention(
        c.dim, c.heads, query_dim=c.head_dim and c.heads * c.head_dim, bias=c.qkv_bias, qk_norm=c.qk_norm,
        attention_dropout=c.attention_dropout, dropout=c.dropout, norm_eps=c.norm_eps,
    )  # fmt: skip
    mlp = parts.FeedForward(c.dim, c.mlp_dim, activation=c.mlp, dropout=c.dropout)
    drop_path = c.stochastic_depth * index / max(1, c.depth - 1)
    kind: type[nn.Module] = parts.ParallelBlock if c.block == "parallel" else parts.Block
    return kind(c.dim, attention, mlp, layer_scale=c.layer_scale, drop_path=drop_path, norm_eps=c.norm_eps)


def _pool(c: ViTConfig) -> nn.Module:
    if c.pool == "class":
        return parts.ClassTokenPooling()
    if c.pool == "mean":
        return parts.MeanPooling(c.prefix)
    if c.pool == "class+mean":
        return parts.ClassAndMeanPooling(c.prefix)
    activation = "gelu" if c.mlp == "swiglu" else c.mlp
    return parts.AttentionPooling(c.dim, c.heads, c.mlp_dim, activation=activation, norm_eps=c.norm_eps)


def _head(c: ViTConfig) -> nn.Module:
    if not c.num_classes:
        return nn.Identity()
    kinds = {
        "linear": parts.linear_head,
        "mlp": parts.mlp_head,
        "lecture": parts.lecture_head,
        "projection": parts.projection_head,
    }
    return kinds[c.head](c.pooled_dim, c.num_classes, dropout=c.head_dropout)


def _initialize(module: nn.Module) -> None:
    """LeCun's normal for matrices, zero for biases; LayerNorm and GroupNorm keep torch's 1 and 0."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.normal_(module.weight, std=1 / math.sqrt(module.weight[0].numel()))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
