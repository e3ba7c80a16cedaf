"""Norms of tokens, (…, D) to (…, D), and of feature maps, (B, C, H, W) to (B, C, H, W)."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

NormKind = Literal["layer", "rms"]
"""LayerNorm (Ba et al. 2016, https://arxiv.org/abs/1607.06450), or RMSNorm, which has neither mean nor bias (Zhang and Sennrich
2019, https://arxiv.org/abs/1910.07467)."""


def norm_layer(dim: int, *, kind: NormKind = "layer", eps: float = 1e-6, affine: bool = True) -> nn.Module:
    """Return a norm of this kind over the last dimension, of width ``dim``; ``affine`` gives it a learned scale (and bias)."""
    layer = nn.LayerNorm if kind == "layer" else nn.RMSNorm
    return layer(dim, eps=eps, elementwise_affine=affine)


class BatchNorm(nn.BatchNorm2d):
    """BatchNorm (Ioffe and Szegedy 2015, https://arxiv.org/abs/1502.03167) of feature maps (B, C, H, W).

    torch's BatchNorm raises in training if a channel has a single value: one image whose map has shrunk to one pixel, as in a
    last batch of one. Here that batch is normalised as in evaluation, and leaves the running statistics unchanged.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x[:, 0].numel() == 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


def batch_norms(module: nn.Module) -> list[nn.BatchNorm1d | nn.BatchNorm2d]:
    """Return the BatchNorms in a module, whose running statistics a training step moves."""
    return [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
