"""Data types under autocast."""

import torch
from torch import Tensor


def as_autocast(x: Tensor) -> Tensor:
    """Return ``x`` in autocast's data type if autocast is on, else unchanged."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))


def learns_under_cpu_autocast(x: Tensor) -> bool:
    """Return whether ``x`` is on a CPU, autocast is on, and gradients are computed."""
    return x.device.type == "cpu" and torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
