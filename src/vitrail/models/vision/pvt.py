"""The Pyramid Vision Transformer (Wang et al. 2021, https://arxiv.org/abs/2102.12122)."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.pvt import PVTConfig, PyramidConfig
from vitrail.models.vision.pyramid import PyramidModel
from vitrail.parts.positions.interpolation import resize_positions

TABLE = "stages.{}.embedding.position.embedding"
BILINEAR = parts.Interpolation("bilinear", antialias=False)
"""The authors' interpolation of positions."""


class PVT(PyramidModel):
    """PVT: images (B, C, H, W) to logits (B, classes), or without classes to the class token (B, D).

    Keys and values come from a coarser grid than queries, except in the last stage, where a class token is added. Learned
    positions of every stage are resized to the image's grid.
    """

    config: PVTConfig
    sight = "coarser grid"
    reads_class_token = True

    def __init__(self, config: PVTConfig):
        super().__init__()
        self.config = c = config
        blocks = stages_of_blocks(c, partial(convolved, c), parts.FeedForward)
        self.stages = nn.ModuleList(parts.Stage(_embedding(c, stage), own) for stage, own in enumerate(blocks))
        self.norm = nn.LayerNorm(c.dims[-1], eps=c.norm_eps)
        self.add_head(c.dims[-1])
        self.initialize()

    def stage_tokens(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the tokens of every stage, without the class token of the last stage."""
        *finer, last = super().stage_tokens(images)
        yield from finer
        yield last[:, 1:].unflatten(1, self.config.grids((images.shape[2], images.shape[3]))[-1])

    def vectors(self, images: Tensor) -> Tensor:
        *_, tokens = super().stage_tokens(images)
        return self.norm(tokens[:, 0])

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        """Convert parameters to other channels, and positions to another size, as `forward` does: not by ``interpolation``."""
        ours, last = super().adapted(tensors, source, target, interpolation), len(source.depths) - 1
        for stage, (old, new) in enumerate(zip(source.grids(), target.grids(), strict=True)):
            name, prefix = TABLE.format(stage), int(stage == last)
            ours[name] = resize_positions(tensors[name], old, new, prefix=prefix, interpolation=BILINEAR)
        return ours


def stages_of_blocks(
    c: PyramidConfig, reduction: Callable[[int], nn.Module | None], mlp: Callable[..., nn.Module]
) -> list[list[nn.Module]]:
    """Return the blocks of every stage.

    Args:
        c: sets their number and widths.
        reduction: builds the coarser grid of keys and values in a stage; returns None for no reduction.
        mlp: builds an MLP, with the arguments of `vitrail.parts.FeedForward`.
    """
    number, stages = 0, []
    for stage, (dim, depth, heads, ratio) in enumerate(zip(c.dims, c.depths, c.heads, c.mlp_ratios, strict=True)):
        blocks: list[nn.Module] = []
        for _ in range(depth):
            attention = parts.ReducedAttention(
                dim, heads, reduction(stage), bias=c.qkv_bias, attention_dropout=c.attention_dropout, dropout=c.dropout
            )
            drop_path = parts.drop_path_rate(c.stochastic_depth, number, sum(c.depths))
            layer = mlp(dim, int(dim * ratio), dropout=c.dropout)
            blocks.append(parts.Block(dim, attention, layer, norm_eps=c.norm_eps, drop_path=drop_path))
            number += 1
        stages.append(blocks)
    return stages


def convolved(c: PyramidConfig, stage: int) -> nn.Module | None:
    """Return the reduction of keys and values in a stage: a convolution whose stride equals its kernel, and a norm."""
    dim, times = c.dims[stage], c.reductions[stage]
    return parts.GridEmbedding(dim, dim, times, norm_eps=c.grid_norm_eps) if times > 1 else None


def _embedding(c: PVTConfig, stage: int) -> nn.Module:
    dim, prefix = c.dims[stage], int(stage == len(c.depths) - 1)
    position = parts.LearnedPosition1d(c.grids()[stage], dim, prefix=prefix, interpolation=BILINEAR)
    return parts.PositionedEmbedding(
        c.dims[stage - 1] if stage else c.channels, dim, c.patch_sizes[stage], position, dropout=c.dropout,
        norm_eps=c.grid_norm_eps,
    )  # fmt: skip
