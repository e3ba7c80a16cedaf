"""Products of few rows with a matrix that never changes, faster than by ``torch.nn.functional.linear``."""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts import Product

FEW = 4
"""Rows up to which nothing is gained by a matrix in blocks."""


def plain(weight: Tensor, bias: Tensor | None) -> Product:
    """As torch has it."""
    return lambda x: F.linear(x, weight, bias)


def in_blocks(weight: Tensor, bias: Tensor | None) -> Product:
    """The same product with a second copy of W, in the order in which the processor reads it.

    torch makes that order anew for every product, which takes as long as the product itself where there are few rows.
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


def in_int8(weight: Tensor, bias: Tensor | None) -> Product:
    """Nearly the same product in 8 bits: W with a scale for each row, x with one for all that is found in it.

    Raises:
        RuntimeError: this processor or this torch has no such product.
    """
    scales = weight.abs().amax(dim=1).clamp(min=1e-8) / 127
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has announced another way, which takes a compiler
        whole = torch.quantize_per_channel(weight, scales.double(), torch.zeros(len(weight), dtype=torch.int64), 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(whole, bias)
    product, narrow = torch.ops.quantized.linear_dynamic.default, overflows()
    return lambda x: product(x, packed, narrow)


def overflows() -> bool:
    """Whether two products of 8 bits are summed up in 16, which do not hold them: x must then do with 7 bits."""
    can = torch.cpu.get_capabilities()
    return can.get("architecture") == "x86_64" and not any(can.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
