"""The Swin Transformer (Liu et al. 2021, https://arxiv.org/abs/2103.14030)."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.swin import SwinConfig
from vitrail.models.vision.pyramid import PyramidModel
from vitrail.parts.positions.interpolation import resize_relative


class Swin(PyramidModel):
    """Swin: images (B, C, H, W) to logits (B, classes), or without classes to the mean of the last tokens (B, D).

    Attention stays within windows, which are shifted in every second block. Between stages, 2×2 tokens are merged into one.
    """

    config: SwinConfig
    sight = "windows"

    def __init__(self, config: SwinConfig):
        super().__init__()
        self.config = c = config
        blocks = _blocks(c)
        self.stages = nn.ModuleList(
            parts.Stage(_embedding(c, stage), [next(blocks) for _ in range(depth)]) for stage, depth in enumerate(c.depths)
        )
        self.norm = nn.LayerNorm(c.widths[-1], eps=c.norm_eps)
        self.add_head(c.widths[-1])
        self.initialize()

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.config.patch_size * 2**stage for stage in range(len(self.config.depths)))

    def vectors(self, images: Tensor) -> Tensor:
        *_, x = self.stage_tokens(images)
        return self.norm(x).mean(dim=(1, 2))

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        """Convert parameters to other channels, and tables of relative positions to another window size."""
        old, new = ((c.window_size, c.window_size) for c in (source, target))
        ours = super().adapted(tensors, source, target, interpolation)
        tables = {
            name: resize_relative(tensor, old, new, prefix_entries=0, interpolation=interpolation)
            for name, tensor in tensors.items()
            if name.endswith(".relative.table")
        }
        return ours | tables

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> set[str]:
        return {*super().may_differ(source, target, keep_head=keep_head), "window_size"}


def _embedding(c: SwinConfig, stage: int) -> nn.Module:
    if stage:
        return parts.PatchMerging(c.widths[stage - 1], norm_eps=c.norm_eps)
    return parts.GridEmbedding(c.channels, c.dim, c.patch_size, pad=True, norm_eps=c.norm_eps)


def _blocks(c: SwinConfig) -> Iterator[nn.Module]:
    """Yield the blocks of all stages in order."""
    window, number = (c.window_size, c.window_size), 0
    for dim, depth, heads in zip(c.widths, c.depths, c.heads, strict=True):
        for place in range(depth):
            attention = parts.WindowAttention(
                dim, heads, window, shifted=place % 2 == 1, bias=c.qkv_bias, attention_dropout=c.attention_dropout,
                dropout=c.dropout,
            )  # fmt: skip
            mlp = parts.FeedForward(dim, int(dim * c.mlp_ratio), dropout=c.dropout)
            drop_path = parts.drop_path_rate(c.stochastic_depth, number, sum(c.depths))
            yield parts.Block(dim, attention, mlp, norm_eps=c.norm_eps, drop_path=drop_path)
            number += 1
