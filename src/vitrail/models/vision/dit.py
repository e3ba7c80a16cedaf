"""The Diffusion Transformer (DiT; Peebles and Xie 2023, https://arxiv.org/abs/2212.09748)."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.errors import ConfigError
from vitrail.models.base import Model, require_shape
from vitrail.models.configs.dit import DiTConfig
from vitrail.models.signature import BATCH, Shape


class DiT(Model):
    """Noisy images (B, C, H, W), their times (B,) and classes (B,) to the noise in them, (B, C, H, W).

    With a learned variance the result is (B, 2C, H, W): behind the noise stands where, for each value, the log-variance lies
    between its two bounds. Class ``num_classes`` stands for none. A fresh model gives zeros.
    """

    config: DiTConfig

    def __init__(self, config: DiTConfig):
        super().__init__()
        self.config = c = config
        self.embedding = parts.PatchEmbedding(c.channels, c.dim, c.patch_size)
        self.position = self.new_position()
        self.time = parts.TimeEmbedding(c.dim, frequencies=c.time_dim, shift=c.time_shift)
        self.label = nn.Embedding(c.labels, c.dim) if c.num_classes else None
        self.add_blocks()
        self.head = parts.ModulatedHead(c.dim, c.patch_size[0] * c.patch_size[1] * c.output_channels, eps=c.norm_eps)
        self.initialize()

    def new_position(self) -> nn.Module:
        """Return what adds positions to tokens (B, N, D)."""
        return parts.sincos_position_2d(self.config.grid, self.config.dim, prefix=0)

    def add_blocks(self) -> None:
        """Add the blocks and what stands between them."""
        self.blocks = nn.ModuleList(self._new_block() for _ in range(self.config.depth))

    def _new_block(self, kind: type[parts.Block] = parts.Block, **options: Any) -> nn.Module:
        c = self.config
        mlp = parts.FeedForward(c.dim, c.mlp_dim, activation="gelu-tanh")
        block = kind(c.dim, parts.Attention(c.dim, c.heads), mlp, norm_eps=c.norm_eps, condition=c.dim, **options)
        if c.mlp_norm_eps is not None:
            cast(nn.LayerNorm, block.mlp.norm).eps = c.mlp_norm_eps
        return block

    def initialize(self) -> None:
        """Draw fresh weights as the authors: Xavier's uniform for matrices, 0.02 for time and classes, zeros for the head."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(module.weight.flatten(1))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.time.expand.weight, std=0.02)
        nn.init.normal_(self.time.contract.weight, std=0.02)
        if self.label is not None:
            nn.init.normal_(self.label.weight, std=0.02)
        nn.init.zeros_(self.head.linear.weight)

    def layers(self) -> list[nn.Module]:
        return list(self.blocks)

    def heads(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def forward(self, images: Tensor, times: Tensor, labels: Tensor | None = None) -> Tensor:
        """(B, C, H, W), (B,) and, of a model with classes, (B,) to (B, C, H, W), or to (B, 2C, H, W) with a learned variance.

        Raises:
            ConfigError: images of another shape, or labels where the model has no classes, or none where it has some.
        """
        condition = self.condition(times, labels)  # (B, D)
        z = self.tokens(images)  # (B, N, D)
        for block in self.blocks:
            z = block(z, condition=condition)  # (B, N, D)
        return self.unpatchified(z, condition)

    def tokens(self, images: Tensor) -> Tensor:
        """Return the patches with their positions: (B, C, H, W) to (B, N, D). Raises `ConfigError` for another shape."""
        require_shape(images, self.config)
        z: Tensor = self.position(self.embedding(images))
        return z

    def unpatchified(self, z: Tensor, condition: Tensor) -> Tensor:
        """Return the result of `forward`, of the last block's tokens (B, N, D)."""
        c = self.config
        return parts.unpatchify(self.head(z, condition), c.patch_size, c.grid, channels_last=True)

    def condition(self, times: Tensor, labels: Tensor | None) -> Tensor:
        """Return the vector that every block is conditioned on: (B, D)."""
        vector: Tensor = self.time(times)
        if (labels is None) != (self.label is None):
            what = "the model has classes and was given none" if labels is None else "the model has no classes and was given some"
            raise ConfigError(what, where="model input", hint="call it with labels (B,) exactly where num_classes is not 0")
        return vector if self.label is None else vector + self.label(labels)

    def inputs(self) -> dict[str, Shape]:
        c = self.config
        classes = {"labels": Shape((BATCH,), torch.int64)} if c.num_classes else {}
        return {"images": Shape((BATCH, c.channels, *c.image_size)), "times": Shape((BATCH,)), **classes}

    def outputs(self) -> dict[str, Shape]:
        return {"noise": Shape((BATCH, self.config.output_channels, *self.config.image_size))}
