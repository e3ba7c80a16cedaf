"""The Vision Transformer (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929)."""

import math
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.errors import ConfigError
from vitrail.models import resizing
from vitrail.models.any_size import AnySize, AnySizeGraph
from vitrail.models.base import ImageModel, on_grid
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.merging import merging_blocks
from vitrail.parts.vision.token_reduction import keep_attention, keep_tokens, random_keep


@dataclass(frozen=True)
class Tokens:
    """The encoder's tokens, split by kind."""

    class_token: Tensor | None
    """(B, D), or None for a model without class token."""
    distillation_token: Tensor | None
    """(B, D), or None for a model without distillation token."""
    registers: Tensor
    """(B, registers, D)."""
    patches: Tensor
    """(B, rows, columns, D)."""


class ViT(ImageModel):
    """A Vision Transformer: images (B, C, H, W) to logits (B, classes), or without classes to the pooled vector (B, D).

    Tokens are ordered ``[class token; distillation token; registers; patches row by row]``.
    """

    config: ViTConfig
    fresh = frozenset(("registers",))
    sight = "image"

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.config = c = config
        self.tokens_read = 1 + c.distillation_token if c.pool == "class" else None  # read by pool and heads; None: all
        self.embedding = self.new_embedding()
        self.class_token = nn.Parameter(torch.zeros(1, 1, c.dim)) if c.has_class_token else None
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, c.dim)) if c.distillation_token else None
        self.registers = nn.Parameter(torch.zeros(1, c.registers, c.dim)) if c.registers else None
        self.position = self.new_position()
        blocks = c.depth if c.position == "relative-per-block" else None
        self.relative = parts.RelativePositionBias(c.grid, c.heads, prefix=c.prefix, blocks=blocks) if c.is_relative else None
        self.rotary = _rotary(c) if c.is_rotary else None
        self.embedding_norm = _norm(c) if c.embedding_norm == "tokens" else nn.Identity()
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(_block(c, i, self.new_mlp()) for i in range(c.depth))
        self.norm = nn.Identity() if c.final_norm == "none" else _norm(c)
        self.pool = _pool(c)
        self.add_heads()
        self.initialize()
        for token in (self.class_token, self.distillation_token, self.registers):
            if token is not None:
                nn.init.normal_(token, std=0.02)

    def new_embedding(self) -> nn.Module:
        """Build the embedding, which maps images to patch tokens."""
        return embedding_of(self.config)

    def new_position(self) -> nn.Module:
        """Build the position that is added to class token and patches; the identity if there is none."""
        return position_of(self.config)

    def new_mlp(self) -> nn.Module:
        """Build the MLP of a block."""
        return mlp_of(self.config, parts.FeedForward)

    def add_heads(self) -> None:
        self.vector_dim = self.config.pooled_dim
        self.head = _head(self.config)
        self.head_distillation = _head(self.config) if self.config.distillation_token else None

    def layers(self) -> list[nn.Module]:
        return list(self.blocks)

    def heads(self) -> dict[str, nn.Module]:
        return {name: head for name in ("head", "head_distillation") if (head := getattr(self, name)) is not None}

    def vectors(self, images: Tensor) -> Tensor:
        return self.pooled(self.encode(images, first=self.tokens_read))

    def vectors_and_map(self, images: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(images)
        return self.pooled(z), on_grid(z[:, self.config.prefix :], self.config.grid_of(images.shape[2], images.shape[3]))

    def at_any_size(self, *, graph: bool = False) -> nn.Module:
        """Return the model for images (B, C, H, W) whose sides are any multiples of the patch."""
        return AnySizeGraph(self) if graph else AnySize(self)

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        if source.distillation_token and not target.distillation_token:
            tensors = resizing.without_second_token(tensors, source)
        return resizing.adapted(tensors, source, target, interpolation)

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return resizing.may_differ(source, target, keep_head=keep_head)

    def forward(self, images: Tensor, *, separate: bool = False) -> Any:
        """Return the logits (B, classes) of images (B, C, H, W).

        A distillation token makes them the mean of both heads' (Touvron et al. 2021, https://arxiv.org/abs/2012.12877);
        ``separate`` gives the pair (class logits, distillation logits) for a loss on each.
        """
        return self.forward_head(self.encode(images, first=self.tokens_read), separate=separate)

    def forward_head(self, z: Tensor, *, separate: bool = False, grid: parts.Grid | None = None) -> Any:
        """Return logits from tokens (B, prefix + N, D) of patches on a ``grid``, or from the first ``tokens_read`` tokens."""
        logits = self.head(self.pooled(z))
        if self.head_distillation is None:
            return logits
        distilled = self.norm(z[:, 1]) if self.config.final_norm == "pooled" else z[:, 1]
        pair = logits, self.head_distillation(distilled)
        return pair if separate else (pair[0] + pair[1]) / 2

    def pooled(self, z: Tensor) -> Tensor:
        """Pool the encoder's tokens (B, prefix + N, D), or the first ``tokens_read``, to the vector that the head reads."""
        vector: Tensor = self.pool(z)
        return self.norm(vector) if self.config.final_norm == "pooled" else vector

    def encode(
        self,
        images: Tensor,
        *,
        first: int | None = None,
        kept: Tensor | None = None,
        masked: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Compute equations (1) to (4): (B, C, H, W) to (B, prefix + N, D).

        With ``first``, the last block computes only the first tokens: (B, first, D). With ``kept``, indices (B, K), the blocks
        process only these tokens: (B, K, D). With ``masked``, a mask (B, N) and a token (D,), the token takes the place of the
        masked patches, before positions are added.
        """
        return self.transform(*self.embed(images, kept=kept, masked=masked), first=first)

    def transform(self, z: Tensor, attention: dict[str, Any], *, first: int | None = None) -> Tensor:
        """Compute equations (2) to (4) on the result of `embed`."""
        if any(self.config.merged) and not self.training:
            z = merging_blocks(self.blocks, z, self.config.merged, prefix=self.config.prefix, first=first)
        else:
            for block, options in zip(self.blocks, of_each_block(attention, self.config.depth, first=first), strict=True):
                z = block(z, **options)  # (B, prefix + N, D)  equations (2), (3)
        return z if self.config.final_norm == "pooled" else self.norm(z)  # equation (4)

    def embed(
        self,
        images: Tensor,
        *,
        any_size: bool = False,
        position: Tensor | None = None,
        kept: Tensor | None = None,
        masked: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Compute equation (1), ``z_0 = [x_class; x_p^1 E; …; x_p^N E] + E_pos``: (B, prefix + N, D).

        The second value holds options for every attention: a bias (a tuple if blocks differ), a rotation, or nothing. With
        ``any_size``, images are whole patches of any number, and positions are resized to their grid; ``position`` replaces
        E_pos. ``kept`` and ``masked`` are as in `encode`; if ``kept`` is None, patch dropout selects tokens in training.
        """
        grid = self.config.grid
        if any_size:
            grid = self.config.at(images.shape[-2], images.shape[-1]).grid
        elif position is None:
            self.require_images(images)
        z = self.embedding(images)  # (B, N, D)
        if masked is not None:
            z = torch.where(masked[0][..., None], masked[1].to(z.dtype), z)
        first = [token.expand(z.shape[0], -1, -1) for token in (self.class_token, self.distillation_token) if token is not None]
        if self.config.class_position:
            z = self._with_position(torch.cat([*first, z], dim=1), grid, position)  # (B, 1 + N, D)
        else:
            z = torch.cat([*first, self._with_position(z, grid, position)], dim=1)
        if self.registers is not None:  # after the class token and without a position, as in their paper
            z = torch.cat([z[:, : len(first)], self.registers.expand(z.shape[0], -1, -1), z[:, len(first) :]], dim=1)
        z = self.dropout(self.embedding_norm(z))  # (B, prefix + N, D)
        attention: dict[str, Any] = {}
        if self.relative is not None:
            attention["bias"] = self.relative(grid)
        if self.rotary is not None:
            attention["rotation"] = self.rotary(grid)
        if kept is None and self.training and self.config.patch_dropout:
            kept = random_keep(
                z.shape[0], math.prod(grid), prefix=self.config.prefix, drop=self.config.patch_dropout, device=z.device
            )
        return (z, attention) if kept is None else (keep_tokens(z, kept), keep_attention(attention, kept))

    def _with_position(self, z: Tensor, grid: parts.Grid, position: Tensor | None) -> Tensor:
        if position is not None:
            return z + position
        return z if isinstance(self.position, nn.Identity) else self.position(z, grid)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """Return one map of images (B, C, H, W), their patch tokens: (B, D, rows, columns); raises as `tokens`."""
        return [self.tokens(images).patches.permute(0, 3, 1, 2)]

    def tokens(self, images: Tensor) -> Tokens:
        """Return the encoder's tokens, split by kind.

        Raises:
            ConfigError: the model is in training with patch dropout.
        """
        if self.training and self.config.patch_dropout:
            what = "patch dropout drops tokens in training, but every patch is needed here"
            raise ConfigError(what, where="model", hint="call model.eval() first")
        z, prefix = self.encode(images), self.config.prefix
        return Tokens(
            class_token=z[:, 0] if self.class_token is not None else None,
            distillation_token=z[:, 1] if self.distillation_token is not None else None,
            registers=z[:, prefix - self.config.registers : prefix],
            patches=z[:, prefix:].unflatten(1, self.config.grid),
        )

    features = tokens
    """The earlier name of `tokens`."""


def of_each_block(attention: dict[str, Any], depth: int, *, first: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the attention options of each of ``depth`` blocks, from those of `ViT.embed`; the last block also gets ``first``."""
    bias = attention.get("bias")
    for number in range(depth):
        own = {"bias": bias[number]} if isinstance(bias, tuple) else {}
        yield {**attention, **own, **({"first": first} if number == depth - 1 else {})}


def embedding_of(c: ViTConfig, *, padding: int = 0) -> nn.Module:
    """Build the embedding of a ViT; ``padding`` is the number of zero pixels around the image."""
    if c.embedding == "stem":
        return parts.ConvStem(c.channels, c.dim, c.patch_size)
    if c.embedding == "pooled-stem":
        return parts.PooledStem(c.channels, c.dim, c.patch_size)
    if c.embedding == "resnet":
        resnet = parts.ResNetFeatures(
            c.channels, c.resnet_depths, width=c.resnet_width, root=c.resnet_root, block=c.resnet_block, kind=c.resnet_kind
        )
        return parts.HybridEmbedding(resnet, c.dim, c.patch_size)
    norm = "none" if c.embedding_norm == "tokens" else c.embedding_norm
    return parts.PatchEmbedding(
        c.channels, c.dim, c.patch_size, method=c.embedding, norm=norm, norm_kind=c.norm_kind, norm_eps=c.norm_eps,
        padding=padding,
    )  # fmt: skip


def _norm(c: ViTConfig) -> nn.Module:
    return parts.norm_layer(c.dim, kind=c.norm_kind, eps=c.norm_eps)


def _rotary(c: ViTConfig) -> nn.Module:
    return parts.RotaryPosition2d(
        c.grid, c.head_dim or c.dim // c.heads, prefix=c.prefix, base=c.rotary_base, coordinates=c.rotary_coordinates,
        reference=c.rotary_grid, offset=c.rotary_offset,
    )  # fmt: skip


def position_of(c: ViTConfig, **options: Any) -> nn.Module:
    """Build the position that is added to class token and patches; ``options`` go to its class."""
    added: dict[str, Callable[..., nn.Module]] = {
        "learned-1d": parts.LearnedPosition1d,
        "learned-1d+rotary": parts.LearnedPosition1d,
        "learned-2d": parts.LearnedPosition2d,
        "sincos-1d": parts.sincos_position_1d,
        "sincos-2d": parts.sincos_position_2d,
        "sincos-2d-simple": partial(parts.sincos_position_2d, endpoint=True),
    }
    if c.position not in added:
        return nn.Identity()
    return added[c.position](c.grid, c.dim, prefix=c.position_prefix, **options)


def mlp_of(c: ViTConfig, kind: Callable[..., nn.Module], **options: Any) -> nn.Module:
    """Build the MLP of a block from the class ``kind``; ``options`` are its further arguments."""
    options |= {"activation": c.mlp, "dropout": c.dropout, "bias": c.linear_bias, "norm_eps": c.norm_eps}
    return kind(c.dim, c.mlp_dim, norm=c.norm_kind if c.mlp_norm else None, **options)


def _block(c: ViTConfig, index: int, mlp: nn.Module) -> nn.Module:
    attention = parts.Attention(
        c.dim, c.heads, query_dim=c.head_dim and c.heads * c.head_dim, bias=c.qkv_bias, output_bias=c.linear_bias,
        qk_norm=c.qk_norm, output_norm=c.attention_norm, attention_dropout=c.attention_dropout, dropout=c.dropout,
        norm_kind=c.norm_kind, norm_eps=c.norm_eps,
    )  # fmt: skip
    drop_path = parts.drop_path_rate(c.stochastic_depth, index, c.depth)
    kind: type[nn.Module] = parts.ParallelBlock if c.block == "parallel" else parts.Block
    return kind(
        c.dim, attention, mlp, norm=c.norm, norm_kind=c.norm_kind, layer_scale=c.layer_scale, drop_path=drop_path,
        norm_eps=c.norm_eps,
    )  # fmt: skip


def _pool(c: ViTConfig) -> nn.Module:
    if c.pool == "class":
        return parts.ClassTokenPooling()
    if c.pool == "mean":
        return parts.MeanPooling(c.prefix)
    if c.pool == "class+mean":
        return parts.ClassAndMeanPooling(c.prefix)
    return parts.AttentionPooling(
        c.dim, c.pool_heads or c.heads, c.pool_mlp_dim or c.mlp_dim, left_out=c.prefix if c.pool == "attention-patches" else 0,
        activation="gelu" if c.mlp == "swiglu" else c.mlp, norm_kind=c.norm_kind, norm_eps=c.norm_eps,
    )  # fmt: skip


def _head(c: ViTConfig) -> nn.Module:
    if not c.num_classes:
        return nn.Identity()
    kinds = {"mlp": parts.mlp_head, "lecture": parts.lecture_head, "projection": parts.projection_head}
    return kinds.get(c.head, parts.linear_head)(c.pooled_dim, c.num_classes, dropout=c.head_dropout)
