"""Linear layers for inference, with weights prepacked for the processor."""

from typing import cast

import torch
from torch import Tensor, nn


class PrepackedLinear(nn.Module):
    """``y = x Wᵀ + b`` with W in the layout that oneDNN multiplies fastest on this processor: (…, in) to (…, out).

    It has no parameters: it can be neither trained nor saved.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self.matrix = cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype)))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, self.matrix, self.bias, "none", [], ""))


def can_prepack(device: torch.device) -> bool:
    """Whether oneDNN is there, which multiplies with prepacked weights."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()
