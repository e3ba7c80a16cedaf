"""Linear layers that only answer."""

from typing import cast

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """``y = x Wᵀ + b`` with W laid out as oneDNN multiplies fastest on this processor: (…, in) to (…, out).

    It has no parameters: nothing of it can be trained or saved.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self.matrix = cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype)))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, self.matrix, self.bias, "none", [], ""))


def can_pack(device: torch.device) -> bool:
    """Whether there is oneDNN to multiply with."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()
