"""Queries, keys and values by three layers in place of one, for OpenVINO."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitrail.models.base import ImageModel
from vitrail.models.inference import sharing_copy
from vitrail.parts.attention.attention import Attention


def apart(model: ImageModel) -> ImageModel:
    """A copy, of the same weights, with three projections in place of every fused one."""
    found = sharing_copy(model)
    for attention in [module for module in found.modules() if isinstance(module, Attention) and hasattr(module, "qkv")]:
        attention.set_submodule("qkv", Apart(attention.qkv, attention.widths))
    return found


class Apart(nn.Module):
    """The fused projection ``U_qkv`` as three, (…, D) to three tensors: to split, OpenVINO copies."""

    def __init__(self, fused: nn.Linear, widths: Sequence[int]):
        super().__init__()
        weights = fused.weight.detach().split(list(widths))
        biases = [None] * len(widths) if fused.bias is None else fused.bias.detach().split(list(widths))
        self.projections = nn.ModuleList(_linear(weight, bias) for weight, bias in zip(weights, biases, strict=True))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(projection(x) for projection in self.projections)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A layer of these very tensors."""
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
