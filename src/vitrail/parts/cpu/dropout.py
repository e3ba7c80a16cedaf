"""Dropout (Srivastava et al. 2014) with cheap random numbers for half precision on a CPU."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

POOL = 2**23
"""Elements of the pool of random mask values."""


class Dropout(nn.Dropout):
    """``x · mask / (1 - p)`` in training, as `torch.nn.Dropout` but with other random numbers.

    On a CPU, torch samples a number per element; in half precision that takes longer than a linear layer on the same rows.
    Here a mask is a slice of one long pool of random mask values, from a random start: each element is dropped with
    probability p, independently of the other elements of its tensor.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p or not _is_cheap(x):
            return F.dropout(x, self.p, self.training, self.inplace)
        start = int(torch.randint(POOL - x.numel(), ()))
        return x * _masks(self.p, x.dtype)[start : start + x.numel()].view(x.shape)


def _is_cheap(x: Tensor) -> bool:
    """Return whether masks are taken from the pool."""
    half = x.device.type == "cpu" and x.dtype.itemsize == 2
    return half and x.numel() <= POOL // 2 and not torch.compiler.is_compiling()


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _masks(p: float, dtype: torch.dtype) -> Tensor:
    """0 with probability p, else ``1 / (1 - p)``: (POOL,)."""
    numbers = torch.rand(POOL, generator=torch.Generator().manual_seed(0))
    return (numbers >= p).to(dtype).mul_(1 / (1 - p) if p < 1 else 0.0)
