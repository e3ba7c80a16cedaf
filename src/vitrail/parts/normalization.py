"""Norms of tokens: (…, D) to (…, D)."""

from typing import Literal

from torch import nn

NormKind = Literal["layer", "rms"]
"""LayerNorm (Ba et al. 2016, https://arxiv.org/abs/1607.06450), or RMSNorm, which has neither mean nor bias (Zhang and Sennrich
2019, https://arxiv.org/abs/1910.07467)."""


def norm_layer(dim: int, *, kind: NormKind = "layer", eps: float = 1e-6) -> nn.Module:
    """A norm of this kind over the last dimension, which is ``dim`` wide."""
    return nn.LayerNorm(dim, eps=eps) if kind == "layer" else nn.RMSNorm(dim, eps=eps)
