"""Vectors that condition a block: the time of a diffusion, and the class of the image."""

import math

import torch
from torch import Tensor, nn


def time_frequencies(times: Tensor, dim: int, *, shift: float = 0.0) -> Tensor:
    """Return ``[cos(t ω); sin(t ω)]`` with ``ω_i = 10000^(-i / (dim/2 - shift))``: (B,) to (B, dim).

    The authors of DiT have ``shift`` 0, diffusers trains with 1. The waves are computed in float32.
    """
    half = dim // 2
    rates = torch.exp(-math.log(10_000) * torch.arange(half, dtype=torch.float32, device=times.device) / (half - shift))
    angles = times.float()[:, None] * rates  # (B, dim/2)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class TimeEmbedding(nn.Module):
    """Times (B,) to vectors (B, D): waves of the time, then ``Linear → SiLU → Linear``."""

    def __init__(self, dim: int, *, frequencies: int = 256, shift: float = 0.0):
        super().__init__()
        self.frequencies, self.shift = frequencies, shift
        self.expand = nn.Linear(frequencies, dim)
        self.contract = nn.Linear(dim, dim)

    def forward(self, times: Tensor) -> Tensor:
        waves = time_frequencies(times, self.frequencies, shift=self.shift)  # (B, frequencies)
        result: Tensor = self.contract(nn.functional.silu(self.expand(waves.to(self.expand.weight.dtype))))
        return result
