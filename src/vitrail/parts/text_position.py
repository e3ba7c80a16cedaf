"""Where a token of a text stands."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.parts.positions import sincos_1d


class SequencePosition(nn.Module):
    """Sin-cos positions of the tokens of a text, of any length: ``x + PE``; see `sincos_1d`.

    Args:
        dim: width D.
        halves: whether all sines stand before all cosines, as in Marian, and not in turns as in the paper.
    """

    def __init__(self, dim: int, *, halves: bool = False):
        super().__init__()
        self.dim, self.halves = dim, halves

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(B, N, D) to (B, N, D); ``offset`` tokens came before the first."""
        length = 64
        while length < offset + x.shape[1]:
            length *= 2  # few tables, whatever the lengths
        table = sequence_table(self.dim, length, halves=self.halves, device=x.device)
        return x + table[offset : offset + x.shape[1]].to(x.dtype)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # it is kept, and may be asked for gradients later
def sequence_table(dim: int, length: int, *, halves: bool, device: torch.device | str = "cpu") -> Tensor:
    """What `SequencePosition` adds to the first tokens, (length, D)."""
    table = sincos_1d(np.arange(length, dtype=np.float64), dim)
    if halves:
        table = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)
    return torch.from_numpy(table.astype(np.float32)).to(device)
