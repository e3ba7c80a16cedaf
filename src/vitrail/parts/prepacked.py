"""Linear layers for inference, with weights prepacked for the processor."""

from typing import cast

import torch
from torch import Tensor, nn

from vitrail.parts.kernels import kernels


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


def has_onednn() -> bool:
    """Whether torch has oneDNN, which multiplies with prepacked weights."""
    return torch.backends.mkldnn.is_available()


def prepacks(device: torch.device) -> bool:
    """Whether weights on a device are to be prepacked: on a processor on which that is the quicker way."""
    return device.type == "cpu" and has_onednn() and kernels().prepacked
