"""Linear layers for inference, with weights prepacked for the processor."""

from functools import cache
from typing import cast

import torch
from torch import Tensor, nn

from vitrail.parts.cpu.kernels import kernels

FUSED: dict[str, tuple[str, list[float], str]] = {
    "gelu": ("gelu", [], "none"),
    "gelu-tanh": ("gelu", [], "tanh"),
    "relu": ("relu", [], ""),
}
"""Activations that oneDNN can fuse into the matrix product, with oneDNN's names for them."""


class PrepackedLinear(nn.Module):
    """``y = x Wᵀ + b`` with W in the layout that oneDNN multiplies fastest on this processor: (…, in) to (…, out).

    It has no parameters: it can be neither trained nor saved.
    """

    activation: str | None = None
    """Activation applied to y, a name in `FUSED`; None for none."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self.matrix = cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype)))

    @property
    def weight(self) -> Tensor:
        """W in its usual layout, unpacked on each access, for code other than this layer's product."""
        return self.matrix.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        applied = ("none", [], "") if self.activation is None else FUSED[self.activation]
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, self.matrix, self.bias, *applied))


@cache
def packs(dtype: torch.dtype) -> bool:
    """Return whether weights of this type can be prepacked: torch must have oneDNN, and the processor half precision."""
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.ones(1, 1, dtype=dtype))
    except (AttributeError, RuntimeError):
        return False
    return True


def prepacks(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether to prepack weights on this device: on a CPU that can, if that is faster."""
    return device.type == "cpu" and kernels().prepacked and packs(dtype)
