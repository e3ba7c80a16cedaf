"""Pooling of all tokens to one vector: (B, prefix + N, D) to (B, D)."""

import torch
from torch import Tensor, nn

from vitrail.parts.attention.attention import Attention
from vitrail.parts.block import Branch
from vitrail.parts.feed_forward import Activation, FeedForward
from vitrail.parts.normalization import NormKind


class ClassTokenPooling(nn.Module):
    """The class token, ``z_L^0`` of equation (4)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class MeanPooling(nn.Module):
    """The mean of the patch tokens; prefix tokens are left out."""

    def __init__(self, prefix: int):
        super().__init__()
        self.prefix = prefix

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.prefix :].mean(dim=1)


class ClassAndMeanPooling(nn.Module):
    """The class token and the mean of the patch tokens, concatenated to (B, 2·D), as DINOv2's classifiers read them."""

    def __init__(self, prefix: int):
        super().__init__()
        self.mean = MeanPooling(prefix)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, 0], self.mean(x)], dim=-1)


class AttentionPooling(nn.Module):
    """A learned query attends to the tokens, then an MLP branch (MAP; Zhai et al. 2022, https://arxiv.org/abs/2106.04560).

    Args:
        dim: width D.
        heads: number of heads.
        mlp_dim: hidden width of the MLP.
        left_out: number of tokens at the start that are not attended to.
        activation: of the MLP.
        norm_kind: of the norm before the MLP.
        norm_eps: its epsilon.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        mlp_dim: int,
        *,
        left_out: int = 0,
        activation: Activation = "gelu",
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-6,
    ):
        super().__init__()
        self.query = nn.Parameter(torch.empty(1, 1, dim))
        nn.init.normal_(self.query, std=0.02)
        self.left_out = left_out
        self.attention = Attention(dim, heads, context_dim=dim)
        self.mlp = Branch(dim, FeedForward(dim, mlp_dim, activation=activation), norm_kind=norm_kind, norm_eps=norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.arange(x.shape[1], device=x.device) >= self.left_out if self.left_out else None  # (N,)
        pooled = self.attention(self.query.expand(x.shape[0], -1, -1), x, mask=mask)  # (B, 1, D)
        return self.mlp(pooled)[:, 0]
