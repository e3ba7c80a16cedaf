"""Linear layers with constant weights that are faster than ``torch.nn.functional.linear`` for few rows."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts import Product

FEW = 4
"""Number of rows up to which a packed matrix is not faster."""


def plain(weight: Tensor, bias: Tensor | None) -> Product:
    """Return ``F.linear`` with these weights as a function of x."""
    return lambda x: F.linear(x, weight, bias)


def in_blocks(weight: Tensor, bias: Tensor | None) -> Product:
    """Return the same function with a second, prepacked copy of the weights, in the memory order that the CPU needs.

    torch reorders the weights at every call, which for few rows takes as long as the product itself.
    """
    try:
        blocks = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
    except (AttributeError, RuntimeError):  # a torch without oneDNN
        return plain(weight, bias)

    def product(x: Tensor) -> Tensor:
        if x.numel() <= FEW * x.shape[-1]:
            return F.linear(x, weight, bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, blocks, bias, "none", [], "")
        return result

    return product
