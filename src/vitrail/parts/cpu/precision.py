"""The type that numbers have under autocast."""

import torch
from torch import Tensor


def as_autocast(x: Tensor) -> Tensor:
    """``x`` in the type of autocast where that is on, and as it is elsewhere."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))
