"""The MLP of a block."""

import torch.nn.functional as F
from torch import Tensor, nn


class FeedForward(nn.Module):
    """``Linear → GELU → Linear``, the MLP of equation (3): (…, D) to (…, output_dim).

    With ``gated`` it is SwiGLU, ``(silu(x W_g) · x W_x) W_o`` (Shazeer 2020, https://arxiv.org/abs/2002.05202), whose
    first projection is twice as wide.
    """

    def __init__(self, dim: int, hidden_dim: int, *, output_dim: int | None = None, gated: bool = False, dropout: float = 0.0):
        super().__init__()
        self.gated = gated
        self.expand = nn.Linear(dim, 2 * hidden_dim if gated else hidden_dim)
        self.contract = nn.Linear(hidden_dim, output_dim or dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.expand(x)  # (…, hidden_dim), twice that when gated
        if self.gated:
            gate, hidden = hidden.chunk(2, dim=-1)
            hidden = F.silu(gate) * hidden
        else:
            hidden = F.gelu(hidden)
        return self.dropout(self.contract(self.dropout(hidden)))
