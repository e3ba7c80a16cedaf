"""Optimizers, and which parameters decay."""

import torch
from torch import nn
from torch.optim import Optimizer

from vitrail.training.settings import OptimizerSettings


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """The matrices of linear layers and convolutions decay; biases, norms, scales, tokens and positions do not."""
    matrices = {m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p in matrices], "weight_decay": weight_decay},
        {"params": [p for p in trained if p not in matrices], "weight_decay": 0.0},
    ]


def create_optimizer(model: nn.Module, settings: OptimizerSettings) -> Optimizer:
    """AdamW, Adam or SGD over the model's parameter groups."""
    groups = parameter_groups(model, settings.weight_decay)
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.lr, betas=settings.betas)
