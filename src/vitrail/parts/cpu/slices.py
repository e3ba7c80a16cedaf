"""Token-wise layers computed slice by slice: on a CPU this takes less memory and time (docs/performance.md)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

SLICE = 1024
"""Tokens in a slice: enough to keep many cores busy, few enough that the hidden layer stays in their caches."""


def may_be_sliced(mlp: nn.Module, x: Tensor) -> bool:
    """Return whether slicing is safe: on a CPU, without training, compiling or hooks inside, and more than `SLICE` tokens."""
    if mlp.training or torch.is_grad_enabled() or x.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if x.shape[:-1].numel() <= SLICE:
        return False
    inside = (part for child in mlp.children() for part in child.modules())
    return not any(part._forward_pre_hooks or part._forward_hooks for part in inside)


def in_slices(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute ``layer(x)`` slice by slice, for a layer that treats each token of (…, D) independently."""
    slices = x.flatten(0, -2).tensor_split(math.ceil(x.shape[:-1].numel() / SLICE))
    return torch.cat([layer(part) for part in slices]).unflatten(0, x.shape[:-1])
