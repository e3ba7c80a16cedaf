"""Three layers for queries, keys and values instead of one fused layer, for OpenVINO."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitrail.models.base import ImageModel
from vitrail.models.inference import sharing_copy
from vitrail.parts.attention.attention import Attention


def apart(model: ImageModel) -> ImageModel:
    """Return a copy of a model, sharing its weights, in which three projections replace every fused one."""
    found = sharing_copy(model)
    for attention in [module for module in found.modules() if isinstance(module, Attention) and hasattr(module, "qkv")]:
        attention.set_submodule("qkv", Apart(attention.qkv, attention.widths))
    return found


class Apart(nn.Module):
    """The fused projection ``U_qkv`` as three layers, (…, D) to three tensors; OpenVINO would copy memory to split one."""

    def __init__(self, fused: nn.Linear, widths: Sequence[int]):
        super().__init__()
        weights = fused.weight.detach().split(list(widths))
        biases = [None] * len(widths) if fused.bias is None else fused.bias.detach().split(list(widths))
        self.projections = nn.ModuleList(_linear(weight, bias) for weight, bias in zip(weights, biases, strict=True))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(projection(x) for projection in self.projections)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a layer that uses these tensors without a copy."""
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
