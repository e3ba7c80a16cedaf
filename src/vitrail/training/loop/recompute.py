"""Activation checkpointing: less memory for more time, since the backward pass recomputes layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitrail.models.base import Model
from vitrail.parts.normalization import batch_norms


def recompute_layers(model: Model) -> None:
    """Make the model's layers store only their inputs (Chen et al. 2016, https://arxiv.org/abs/1604.06174).

    In training, the backward pass recomputes every layer with the same random numbers, so that gradients do not change.
    """
    layer: Any
    for layer in model.layers():
        layer.forward = partial(_recomputed, layer, layer.forward)


def _recomputed(layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not (layer.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    if not torch.compiler.is_compiling():  # a compiled graph updates statistics only once, and allows no contexts
        kwargs["context_fn"] = lambda: (nullcontext(), _statistics_restored(layer))  # for forward pass and recomputation
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


@contextmanager
def _statistics_restored(layer: nn.Module) -> Iterator[None]:
    """Restore BatchNorm's running mean and variance after the ``with``, since recomputation updates them a second time."""
    tables = [table for norm in batch_norms(layer) for table in norm.buffers()]
    before = [table.clone() for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.copy_(old)
