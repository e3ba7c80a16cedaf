"""The Convolutional vision Transformer (CvT; Wu et al. 2021, https://arxiv.org/abs/2103.15808)."""

from typing import cast

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.cvt import CvTConfig
from vitrail.models.vision.pyramid import PyramidModel


class CvT(PyramidModel):
    """CvT: images (B, C, H, W) to logits (B, classes), or without classes to the class token (B, D).

    Every stage makes tokens of overlapping patches, and queries, keys and values are convolutions of them. There are no
    positions. A class token is added in the last stage.
    """

    config: CvTConfig
    sight = "coarser grid"
    reads_class_token = True

    def __init__(self, config: CvTConfig):
        super().__init__()
        self.config = c = config
        self.tokens_read = 1
        self.stages = nn.ModuleList(_stage(c, number) for number in range(len(c.depths)))
        self.norm = nn.LayerNorm(c.dims[-1], eps=c.norm_eps)
        self.add_head(c.dims[-1])
        self.initialize()

    def vectors(self, images: Tensor) -> Tensor:
        x = self.grid_of(images)
        *stages, last = self.stages
        for stage in stages:
            x = stage(x)
        tokens, _ = cast(parts.SequenceStage, last).sequence(x, first=self.tokens_read)
        return self.norm(tokens[:, 0])


def _stage(c: CvTConfig, number: int) -> nn.Module:
    dim, depth, last = c.dims[number], c.depths[number], number == len(c.depths) - 1
    embedding = parts.GridEmbedding(
        c.dims[number - 1] if number else c.channels, dim, c.patch_sizes[number], stride=c.strides[number],
        padding=c.paddings[number], norm_eps=c.norm_eps,
    )  # fmt: skip
    rates = [parts.drop_path_rate(c.stochastic_depth, place, depth) if last else 0.0 for place in range(depth)]
    return parts.SequenceStage(embedding, [_block(c, number, rate) for rate in rates], class_token=dim if last else None)


def _block(c: CvTConfig, number: int, drop_path: float) -> nn.Module:
    dim = c.dims[number]
    attention = parts.ConvolvedAttention(dim, c.heads[number], attention_dropout=c.attention_dropout, dropout=c.dropout)
    mlp = parts.FeedForward(dim, int(dim * c.mlp_ratio), activation=c.activation, dropout=c.dropout)
    return parts.Block(dim, attention, mlp, norm_eps=c.norm_eps, drop_path=drop_path)
