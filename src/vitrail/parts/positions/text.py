"""Positions of the tokens of a text."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts.positions.schemes import sincos_1d


class SequencePosition(nn.Module):
    """Sin-cos positions of the tokens of a text, of any length: ``x + PE``; see `sincos_1d`.

    Args:
        dim: width D.
        halves: all sines come before all cosines, as in Marian; otherwise they alternate, as in the paper.
    """

    def __init__(self, dim: int, *, halves: bool = False):
        super().__init__()
        self.dim, self.halves = dim, halves

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Add positions to (B, N, D), whose first token has position ``offset``."""
        length = 64
        while length < offset + x.shape[1]:
            length *= 2  # powers of two, so that few tables are cached
        table = sequence_table(self.dim, length, halves=self.halves, device=x.device)
        return x + table[offset : offset + x.shape[1]].to(x.dtype)


class LearnedSequencePosition(nn.Module):
    """Learned positions of the tokens of a text: ``x + E_pos``, as in GPT-2.

    Args:
        dim: width D.
        length: tokens of the longest text.
    """

    def __init__(self, dim: int, length: int):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(length, dim).normal_(std=0.02))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Add positions to (B, N, D), whose first token has position ``offset``.

        Raises:
            ConfigError: the tokens exceed the positions.
        """
        end = offset + x.shape[1]
        if end > len(self.embedding):
            what = f"a text of {end:,} tokens is too long: the model has positions for {len(self.embedding):,}"
            raise ConfigError(what, where="model input", hint="write shorter texts: lower max_length")
        return x + self.embedding[offset:end].to(x.dtype)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # the cached table may later be used with gradients
def sequence_table(dim: int, length: int, *, halves: bool, device: torch.device | str = "cpu") -> Tensor:
    """Return the positions of the first tokens, (length, D)."""
    table = sincos_1d(np.arange(length, dtype=np.float64), dim)
    if halves:
        table = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)
    return torch.from_numpy(table.astype(np.float32)).to(device)
