"""Weights away from where they start."""

from torch import nn


def randomize(model: nn.Module, *, std: float) -> nn.Module:
    """Every parameter and running statistic away from where it starts, so that each has a say; in double precision."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=std)
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            nn.init.uniform_(buffer, 0.5, 1.5)
    return model.double().eval()
