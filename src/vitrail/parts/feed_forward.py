"""The MLP of a block."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.cpu.dropout import Dropout
from vitrail.parts.cpu.slices import in_slices, may_be_sliced
from vitrail.parts.normalization import NormKind, norm_layer

Activation = Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "silu", "swiglu"]
"""GELU, its approximations by tanh (gelu-tanh) and by ``x · sigmoid(1.702 x)`` (quick-gelu), SiLU ``x · sigmoid(x)`` (Hendrycks
and Gimpel 2016, https://arxiv.org/abs/1606.08415), ReLU, and the gated SwiGLU."""


class FeedForward(nn.Module):
    """``Linear → GELU → Linear``, the MLP of equation (3): (…, D) to (…, output_dim).

    With the activation "swiglu" it is ``(silu(x W_g) · x W_x) W_o`` (Shazeer 2020, https://arxiv.org/abs/2002.05202), whose
    first projection is twice as wide.

    Args:
        dim: width D.
        hidden_dim: width between the two linear layers; for "swiglu" the width after the gate.
        output_dim: width of the result; ``dim`` by default.
        activation: between the two linear layers.
        dropout: dropout on the result; also after the activation if ``hidden_dropout`` is None.
        hidden_dropout: dropout after the activation.
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
        """None if ``expand`` applies the activation itself."""
        self.expand = nn.Linear(dim, 2 * hidden_dim if activation == "swiglu" else hidden_dim, bias=bias)
        self.norm = norm_layer(hidden_dim, kind=norm, eps=norm_eps) if norm else nn.Identity()
        self.contract = nn.Linear(hidden_dim, output_dim or dim, bias=bias)
        self.hidden_dropout = Dropout(dropout if hidden_dropout is None else hidden_dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return in_slices(self.whole, x) if may_be_sliced(self, x) else self.whole(x)

    def whole(self, x: Tensor) -> Tensor:
        """Compute equation (3) for all tokens at once, without slices."""
        hidden = activate(self.exchanged(self.expand(x)), self.activation)  # (…, hidden_dim)
        return self.dropout(self.contracted(self.norm(self.hidden_dropout(hidden))))

    def exchanged(self, hidden: Tensor) -> Tensor:
        """Return the hidden layer after tokens are mixed; this class does not mix them."""
        return hidden

    def contracted(self, hidden: Tensor) -> Tensor:
        """Apply the second linear layer: (…, hidden_dim) to (…, output_dim)."""
        return self.contract(hidden)


class ExpertFeedForward(FeedForward):
    """An MLP with several experts, which share all but the last outputs: (…, D) to (…, D).

    ViTPose+ (Xu et al. 2023, https://arxiv.org/abs/2212.04246, section 3.4): the shared second linear layer computes the first
    ``dim - expert_dim`` values of a token, and the linear layer of one expert the others. Only the selected expert is computed
    and trained.

    Args:
        dim: width D.
        hidden_dim: width between the two linear layers.
        experts: number of experts.
        expert_dim: number of values that an expert computes.
        expert: number of the selected expert, from 0.
        options: as in `FeedForward`.
    """

    def __init__(self, dim: int, hidden_dim: int, *, experts: int, expert_dim: int, expert: int = 0, **options: Any):
        super().__init__(dim, hidden_dim, output_dim=dim - expert_dim, **options)
        bias = self.contract.bias is not None
        self.experts = nn.ModuleList(nn.Linear(hidden_dim, expert_dim, bias=bias) for _ in range(experts))
        self.expert = expert
        for number, other in enumerate(self.experts):
            other.requires_grad_(number == expert)  # data parallelism waits for gradients of every trainable parameter

    def contracted(self, hidden: Tensor) -> Tensor:
        return torch.cat([self.contract(hidden), self.experts[self.expert](hidden)], dim=-1)


class ConvFeedForward(FeedForward):
    """``Linear → 3×3 depth-wise convolution → GELU → Linear`` on a token grid: (B, H, W, D) to (B, H, W, output_dim).

    The zero padding lets the network infer positions (Wang et al. 2022, https://arxiv.org/abs/2106.13797, section 3.2).

    Args:
        dim: width D.
        hidden_dim: width between the two linear layers.
        rectified: adds a ReLU before the convolution.
        options: as in `FeedForward`.
    """

    def __init__(self, dim: int, hidden_dim: int, *, rectified: bool = False, **options: Any):
        super().__init__(dim, hidden_dim, **options)
        self.rectified = rectified
        self.depthwise = nn.Conv2d(hidden_dim, hidden_dim, 3, padding=1, groups=hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(x)  # never in slices: the convolution needs all tokens

    def exchanged(self, hidden: Tensor) -> Tensor:
        hidden = F.relu(hidden) if self.rectified else hidden
        return self.depthwise(hidden.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def activate(hidden: Tensor, activation: Activation | None) -> Tensor:
    """Apply the activation: (…, hidden_dim), for swiglu (…, 2 · hidden_dim), to (…, hidden_dim)."""
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
        return F.silu(1.702 * hidden).mul_(1 / 1.702)  # fewer passes over the memory
    return F.gelu(hidden, approximate="tanh" if activation == "gelu-tanh" else "none")
