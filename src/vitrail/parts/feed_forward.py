"""The MLP of a block."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.cpu.dropout import Dropout
from vitrail.parts.cpu.slices import in_slices, may_be_sliced
from vitrail.parts.normalization import NormKind, norm_layer

Activation = Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "silu", "swiglu"]
"""GELU itself, its approximations by tanh and by ``x · sigmoid(1.702 x)``, and SiLU, ``x · sigmoid(x)`` (Hendrycks and Gimpel
2016, https://arxiv.org/abs/1606.08415), ReLU as in Vaswani et al. 2017, and the gated SwiGLU."""


class FeedForward(nn.Module):
    """``Linear → GELU → Linear``, the MLP of equation (3): (…, D) to (…, output_dim).

    With the activation "swiglu" it is ``(silu(x W_g) · x W_x) W_o`` (Shazeer 2020, https://arxiv.org/abs/2002.05202), whose
    first projection is twice as wide.

    Args:
        dim: width D.
        hidden_dim: width between the two linear layers, behind the gate.
        output_dim: width of the result; ``dim`` by default.
        activation: between the two.
        dropout: on the result, and after the activation where ``hidden_dropout`` does not say otherwise.
        hidden_dropout: after the activation.
        bias: whether the linear layers have a bias.
        norm: a norm on the activations (NormFormer; Shleifer et al. 2021, https://arxiv.org/abs/2110.09456), or none.
        norm_eps: its epsilon.
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        *,
        output_dim: int | None = None,
        activation: Activation = "gelu",
        dropout: float = 0.0,
        hidden_dropout: float | None = None,
        bias: bool = True,
        norm: NormKind | None = None,
        norm_eps: float = 1e-6,
    ):
        super().__init__()
        self.activation: Activation | None = activation
        """None where ``expand`` applies it."""
        self.expand = nn.Linear(dim, 2 * hidden_dim if activation == "swiglu" else hidden_dim, bias=bias)
        self.norm = norm_layer(hidden_dim, kind=norm, eps=norm_eps) if norm else nn.Identity()
        self.contract = nn.Linear(hidden_dim, output_dim or dim, bias=bias)
        self.hidden_dropout = Dropout(dropout if hidden_dropout is None else hidden_dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return in_slices(self.whole, x) if may_be_sliced(self, x) else self.whole(x)

    def whole(self, x: Tensor) -> Tensor:
        """Equation (3) of all tokens at once."""
        hidden = activate(self.exchanged(self.expand(x)), self.activation)  # (…, hidden_dim)
        return self.dropout(self.contracted(self.norm(self.hidden_dropout(hidden))))

    def exchanged(self, hidden: Tensor) -> Tensor:
        """Return the hidden layer after an exchange between tokens; here there is none."""
        return hidden

    def contracted(self, hidden: Tensor) -> Tensor:
        """Return the second linear layer: (…, hidden_dim) to (…, output_dim)."""
        return self.contract(hidden)


class ExpertFeedForward(FeedForward):
    """An MLP of which several experts share all but their part of the results: (…, D) to (…, D).

    ViTPose+ (Xu et al. 2023, https://arxiv.org/abs/2212.04246, section 3.4): the second linear layer gives the first
    ``dim - expert_dim`` values of a token, and one expert, a linear layer of its own, the others. Only the expert that answers
    is computed and trained.

    Args:
        dim: width D.
        hidden_dim: width between the two linear layers.
        experts: how many there are.
        expert_dim: how many values are an expert's.
        expert: which of them answers.
        options: as in `FeedForward`.
    """

    def __init__(self, dim: int, hidden_dim: int, *, experts: int, expert_dim: int, expert: int = 0, **options: Any):
        super().__init__(dim, hidden_dim, output_dim=dim - expert_dim, **options)
        bias = self.contract.bias is not None
        self.experts = nn.ModuleList(nn.Linear(hidden_dim, expert_dim, bias=bias) for _ in range(experts))
        self.expert = expert
        for number, other in enumerate(self.experts):
            other.requires_grad_(number == expert)  # data parallelism waits for the gradient of all that is to be trained

    def contracted(self, hidden: Tensor) -> Tensor:
        return torch.cat([self.contract(hidden), self.experts[self.expert](hidden)], dim=-1)


class ConvFeedForward(FeedForward):
    """``Linear → 3×3 depth-wise convolution → GELU → Linear`` of tokens on their grid: (B, H, W, D) to (B, H, W, output_dim).

    Zeros around the grid tell tokens where they stand (Wang et al. 2022, https://arxiv.org/abs/2106.13797, section 3.2).

    Args:
        dim: width D.
        hidden_dim: width between the two linear layers.
        rectified: whether a ReLU stands before the convolution.
        options: as in `FeedForward`.
    """

    def __init__(self, dim: int, hidden_dim: int, *, rectified: bool = False, **options: Any):
        super().__init__(dim, hidden_dim, **options)
        self.rectified = rectified
        self.depthwise = nn.Conv2d(hidden_dim, hidden_dim, 3, padding=1, groups=hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(x)  # of which no token can be left out

    def exchanged(self, hidden: Tensor) -> Tensor:
        hidden = F.relu(hidden) if self.rectified else hidden
        return self.depthwise(hidden.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def activate(hidden: Tensor, activation: Activation | None) -> Tensor:
    """Apply the activation: (…, hidden_dim), or twice that with a gate, to (…, hidden_dim)."""
    if activation is None:
        return hidden
    if activation == "swiglu":
        gate, hidden = hidden.chunk(2, dim=-1)
        return F.silu(gate) * hidden
    if activation == "relu":
        return F.relu(hidden)
    if activation == "silu":
        return F.silu(hidden)
    if activation == "quick-gelu":
        return F.silu(1.702 * hidden).mul_(1 / 1.702)  # in fewer passes over the memory
    return F.gelu(hidden, approximate="tanh" if activation == "gelu-tanh" else "none")
