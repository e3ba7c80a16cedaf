"""The Masked Diffusion Transformer (MDT; Gao et al. 2023, https://arxiv.org/abs/2303.14389) and its second version."""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.mdt import MDTConfig, MDTv2Config
from vitrail.models.vision.dit import DiT


class MDTBlock(parts.Block):
    """A block of DiT with a learned bias for every offset between two patches.

    With ``joins`` it first joins its input and another sequence, (B, N, D) each, by a linear layer.
    """

    def __init__(self, dim: int, attention: parts.Attention, *others: Any, grid: parts.Grid, joins: bool, **options: Any):
        super().__init__(dim, attention, *others, **options)
        self.relative = parts.RelativePositionBias(grid, attention.heads, prefix=0, unused=3)
        self.join = nn.Linear(2 * dim, dim) if joins else None

    def forward(self, x: Tensor, *, skip: Tensor | None = None, kept: Tensor | None = None, **options: Any) -> Tensor:
        """(B, N, D) to (B, N, D), or (B, K, D) of the patches ``kept`` (B, K); ``skip`` is joined with ``x``."""
        if self.join is not None:
            assert skip is not None
            x = self.join(torch.cat([x, skip], dim=-1)).to(x.dtype)  # as elsewhere, the sum of all branches keeps its precision
        return super().forward(x, bias=self.relative() if kept is None else self.relative.between(kept), **options)


class MDT(DiT):
    """A DiT that learns twice in every step: from all patches, and from those that a mask leaves.

    Under a mask the encoder sees some patches alone. A mask token then stands for each of the others, and the side block draws
    them from all; the decoder goes on from there. Without a mask the side block is left out.
    """

    config: MDTConfig

    def new_position(self) -> nn.Module:
        return parts.LearnedPosition1d(self.config.grid, self.config.dim, prefix=0)

    def add_blocks(self) -> None:
        self.blocks = nn.ModuleList(self.new_blocks(self.config.depth))
        self.add_side()

    def new_blocks(self, count: int, *, joins: bool = False) -> list[nn.Module]:
        """Return so many fresh blocks."""
        return [self._new_block(MDTBlock, grid=self.config.grid, joins=joins) for _ in range(count)]

    def add_side(self) -> None:
        """Add what stands between encoder and decoder: mask token, second positions and side block."""
        self.mask_token = nn.Parameter(torch.zeros(1, 1, self.config.dim))
        self.decoder_position = self.new_position()
        (self.side,) = self.new_blocks(1)

    def initialize(self) -> None:
        """Draw fresh weights as DiT's; both tables of positions start as its cosines and sines."""
        super().initialize()
        nn.init.normal_(self.mask_token, std=0.02)
        fixed: Any = super().new_position()
        tables: tuple[Any, ...] = self.position, self.decoder_position
        with torch.no_grad():
            for table in tables:
                table.embedding.copy_(fixed.embedding)

    def forward(self, images: Tensor, times: Tensor, labels: Tensor | None = None, masked: Tensor | None = None) -> Tensor:
        """Return the result of `DiT.forward`; where ``masked``, bool (B, N), is True, a patch is hidden from the encoder.

        No image may have more patches that are not masked than ``config.seen(config.mask_ratio)``.
        """
        condition = self.condition(times, labels)  # (B, D)
        noisy = self.tokens(images)  # (B, N, D)
        if masked is None:
            z = self.decoder_position(self.encode(noisy, condition=condition))  # (B, N, D)
        else:
            z = self.completed(noisy, masked, condition)  # (B, N, D)
        return self.unpatchified(self.decode(z, noisy, condition), condition)

    def completed(self, noisy: Tensor, masked: Tensor, condition: Tensor) -> Tensor:
        """Return the tokens that the decoder reads under a mask (B, N): (B, N, D)."""
        c = self.config
        kept = masked.argsort(dim=1, stable=True)[:, : c.seen(c.mask_ratio)]  # (B, K)
        places = kept[..., None].expand(-1, -1, c.dim)
        looks = ~masked.gather(1, kept)[:, None, None]  # (B, 1, 1, K): of an image that sees fewer than K, the last are masked
        seen = self.encode(noisy.gather(1, places), condition=condition, kept=kept, mask=looks)  # (B, K, D)
        hidden = masked[..., None]
        z = torch.where(hidden, self.mask_token, noisy.scatter(1, places, seen))  # each at its place again
        z = self.decoder_position(z)
        return torch.where(hidden, self.side(z, condition=condition), z)

    def encode(self, z: Tensor, **options: Any) -> Tensor:
        """Return the encoder's tokens, of all patches (B, N, D) or of those ``kept``."""
        for block in self.blocks[: -self.config.decoder_depth]:
            z = block(z, **options)
        return z

    def decode(self, z: Tensor, noisy: Tensor, condition: Tensor) -> Tensor:
        """Return the last block's tokens (B, N, D); ``noisy`` are the tokens that entered the encoder."""
        for block in self.blocks[-self.config.decoder_depth :]:
            z = block(z, condition=condition)
        return z


class MDTv2(MDT):
    """An MDT whose encoder is a U: a block of its later half joins the result of its counterpart, the innermost pair first.

    Each block of the decoder joins the noisy tokens that entered the encoder.
    """

    config: MDTv2Config

    def add_blocks(self) -> None:
        c = self.config
        half = (c.depth - c.decoder_depth) // 2
        self.blocks = nn.ModuleList(self.new_blocks(half))
        self.later_blocks = nn.ModuleList(self.new_blocks(half, joins=True))
        self.add_side()
        self.decoder_blocks = nn.ModuleList(self.new_blocks(c.decoder_depth, joins=True))

    def layers(self) -> list[nn.Module]:
        return [*self.blocks, *self.later_blocks, *self.decoder_blocks]

    def encode(self, z: Tensor, **options: Any) -> Tensor:
        skips = []
        for block in self.blocks:
            z = block(z, **options)
            skips.append(z)
        for block in self.later_blocks:
            z = block(z, skip=skips.pop(), **options)
        return z

    def decode(self, z: Tensor, noisy: Tensor, condition: Tensor) -> Tensor:
        for block in self.decoder_blocks:
            z = block(z, skip=noisy, condition=condition)
        return z
