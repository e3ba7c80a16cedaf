"""Attention by random features, whose cost grows linearly with the number of tokens."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts.attention.attention import Attention
from vitrail.parts.attention.dot_product import Group

EPSILON = 1e-8
"""Added to the row sums that weights are divided by: these are near zero for queries and keys of large norm."""


def positive_features(x: Tensor, directions: Tensor) -> Tensor:
    """Compute ``φ(x) = exp(W x - |x|² / 2) / sqrt(m)``: (…, N, D_h) to (…, N, m), all positive.

    Where W's rows are drawn from the standard normal, the mean of ``φ(q) · φ(k)`` is ``exp(q · k)`` (Choromanski et al. 2021,
    https://arxiv.org/abs/2009.14794, lemma 1).

    Args:
        directions: W, (m, D_h).
    """
    return (x @ directions.mT - (x * x).sum(dim=-1, keepdim=True) / 2).exp() / math.sqrt(directions.shape[0])


class KernelAttention(Attention):
    """Attention with ``A = φ(q) φ(k)ᵀ``, each row divided by its sum, in place of a softmax. Scores are not scaled.

    ``A v`` is computed as ``φ(q) (φ(k)ᵀ v)``, so A is never built. The random features are orthogonal rows of length √m, as in
    T2T-ViT. They are sampled once and saved with the weights. They and all products with them stay in float32, also under
    autocast: the exponentials exceed the range of half precision.

    Args:
        features: number m of random features.
        others: as in `Attention`, except attention dropout and scale.
    """

    features: Tensor

    def __init__(self, dim: int, heads: int, *, features: int, **others: Any):
        super().__init__(dim, heads, **others)
        directions = torch.empty(features, self.widths[0] // heads)
        self.register_buffer("features", nn.init.orthogonal_(directions, gain=math.sqrt(features)))

    def attended(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        groups: Sequence[Group] = (),
        causal: bool = False,
    ) -> Tensor:
        if mask is not None or bias is not None or groups or causal:
            what, hint = "random-feature attention takes no mask, bias, groups or causal", "take another attention"
            raise ConfigError(what, where="KernelAttention", hint=hint)
        with _in_single_precision(q):
            q, k = self.features_of(q), self.features_of(k)  # (B, k, N, m)
            total = q @ k.sum(dim=-2)[..., None]  # (B, k, N_Q, 1)
            return (q @ (k.mT @ v.float()) / (total + EPSILON)).to(v.dtype)

    def features_of(self, x: Tensor) -> Tensor:
        """Compute φ of queries or keys in float32: (B, k, N, D_h) to (B, k, N, m)."""
        return positive_features(x.float(), self.features.float())

    def weights_of(
        self, q: Tensor, k: Tensor, *, mask: Tensor | None = None, bias: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        with _in_single_precision(q):
            weights = self.features_of(q) @ self.features_of(k).mT
            return weights / (weights.sum(dim=-1, keepdim=True) + EPSILON)


def _in_single_precision(x: Tensor) -> Any:
    """Return a context that disables autocast; where autocast is off, one that does nothing, as graphs cannot hold autocast."""
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()
