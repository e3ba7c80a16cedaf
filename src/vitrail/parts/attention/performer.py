"""Attention by random features, whose cost grows with the number of tokens and not with its square."""

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
"""Added to what weights are divided by, which may be near nothing for keys and queries that are long."""


def positive_features(x: Tensor, directions: Tensor) -> Tensor:
    """``φ(x) = exp(W x - |x|² / 2) / sqrt(m)``: (…, N, D_h) to (…, N, m), all above zero.

    Where W's rows are drawn from the standard normal, the mean of ``φ(q) · φ(k)`` is ``exp(q · k)`` (Choromanski et al. 2021,
    https://arxiv.org/abs/2009.14794, lemma 1).

    Args:
        directions: W, (m, D_h).
    """
    return (x @ directions.mT - (x * x).sum(dim=-1, keepdim=True) / 2).exp() / math.sqrt(directions.shape[0])


class KernelAttention(Attention):
    """Attention with ``A = φ(q) φ(k)ᵀ``, each row divided by its sum, in place of the softmax of scores, which are not scaled.

    ``A v`` is ``φ(q) (φ(k)ᵀ v)``, so A is never built. The random features, orthogonal rows of length √m as in T2T-ViT, are drawn
    once and kept with the weights. They and all products with them are in single precision, also under autocast: exponentials
    leave what half precision can hold.

    Args:
        features: number m of random features.
        others: as in `Attention`, of which there is no attention dropout and no scale.
    """

    features: Tensor

    def __init__(self, dim: int, heads: int, *, features: int, **others: Any):
        super().__init__(dim, heads, **others)
        drawn = nn.init.orthogonal_(torch.empty(features, self.widths[0] // heads))
        self.register_buffer("features", drawn * math.sqrt(features))

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
            what, hint = "attention by random features lets every token see all others", "take another attention"
            raise ConfigError(what, where="KernelAttention", hint=hint)
        with _in_single_precision(q):
            q, k = self.features_of(q), self.features_of(k)  # (B, k, N, m)
            total = q @ k.sum(dim=-2)[..., None]  # (B, k, N_Q, 1)
            return (q @ (k.mT @ v.float()) / (total + EPSILON)).to(v.dtype)

    def features_of(self, x: Tensor) -> Tensor:
        """φ of queries or keys, in single precision: (B, k, N, D_h) to (B, k, N, m)."""
        return positive_features(x.float(), self.features.float())

    def weights_of(
        self, q: Tensor, k: Tensor, *, mask: Tensor | None = None, bias: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        with _in_single_precision(q):
            weights = self.features_of(q) @ self.features_of(k).mT
            return weights / (weights.sum(dim=-1, keepdim=True) + EPSILON)


def _in_single_precision(x: Tensor) -> Any:
    """Within, autocast changes no products; entered only where that is on, as graphs cannot hold it."""
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()
