"""Activation checkpointing: less memory for more time, since the backward pass computes layers again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitrail.models.base import Model


def recompute_layers(model: Model) -> None:
    """Make the model's layers hold only their inputs (Chen et al. 2016, https://arxiv.org/abs/1604.06174).

    In training every layer is computed again in the backward pass, with the same random numbers: gradients are the same.
    """
    layer: Any
    for layer in model.layers():
        layer.forward = partial(_recomputed, layer, layer.forward)


def _recomputed(layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not (layer.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    if not torch.compiler.is_compiling():  # a graph writes each statistic once, and takes no contexts
        kwargs["context_fn"] = lambda: (nullcontext(), _statistics_restored(layer))  # of the first pass, and of the second
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


@contextmanager
def _statistics_restored(layer: nn.Module) -> Iterator[None]:
    """Restore BatchNorm's running mean and variance, which take the same batch up once more within."""
    tables = [table for module in layer.modules() if isinstance(module, nn.BatchNorm2d) for table in module.buffers()]
    before = [table.clone() for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.copy_(old)
