"""Products of few rows with a matrix that never changes, faster than by ``torch.nn.functional.linear``."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts import Product

FEW = 4
"""Rows up to which nothing is gained by a matrix in blocks."""


def plain(weight: Tensor, bias: Tensor | None) -> Product:
    """Return the product as torch has it."""
    return lambda x: F.linear(x, weight, bias)


def in_blocks(weight: Tensor, bias: Tensor | None) -> Product:
    """Return the same product with a second copy of W, in the order in which the processor reads it.

    torch sorts W anew for every product, which takes as long as the product itself where there are few rows.
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
