"""The Pyramid Vision Transformer v2 (Wang et al. 2022, https://arxiv.org/abs/2106.13797)."""

from functools import partial

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.pvt_v2 import PVTv2Config
from vitrail.models.vision.pvt import convolved, stages_of_blocks
from vitrail.models.vision.pyramid import PyramidModel


class PVTv2(PyramidModel):
    """PVT v2: images (B, C, H, W) to logits (B, classes), or without classes to the mean of the last tokens (B, D).

    Patches overlap. There are no positions, since depth-wise convolutions in the MLPs let tokens infer them.
    """

    config: PVTv2Config
    sight = "coarser grid"

    def __init__(self, config: PVTv2Config):
        super().__init__()
        self.config = c = config
        blocks = stages_of_blocks(c, partial(_reduction, c), partial(parts.ConvFeedForward, rectified=c.pooled))
        self.stages = nn.ModuleList(
            parts.Stage(_embedding(c, stage), own, nn.LayerNorm(c.dims[stage], eps=c.norm_eps))
            for stage, own in enumerate(blocks)
        )
        self.add_head(c.dims[-1])
        self.initialize()

    def vectors(self, images: Tensor) -> Tensor:
        *_, x = self.stage_tokens(images)
        return x.mean(dim=(1, 2))


def _reduction(c: PVTv2Config, stage: int) -> nn.Module | None:
    return parts.PooledReduction(c.dims[stage], norm_eps=c.grid_norm_eps) if c.pooled else convolved(c, stage)


def _embedding(c: PVTv2Config, stage: int) -> nn.Module:
    side = c.patch_sizes[stage]
    return parts.GridEmbedding(
        c.dims[stage - 1] if stage else c.channels, c.dims[stage], side, stride=c.strides[stage], padding=side // 2,
        norm_eps=c.grid_norm_eps,
    )  # fmt: skip
