"""Less memory for more time: what a layer computes is not kept for the backward pass, but computed again there."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitrail.models.base import Model


def recompute_layers(model: Model) -> None:
    """Keep of each of the model's layers what it is given alone (Chen et al. 2016, https://arxiv.org/abs/1604.06174).

    In training every layer is computed a second time in the backward pass, with the same random numbers: gradients are the very
    same. Elsewhere nothing changes.
    """
    layer: Any
    for layer in model.layers():
        layer.forward = partial(_recomputed, layer, layer.forward)


def _recomputed(layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not (layer.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    if not torch.compiler.is_compiling():  # a graph writes each statistic once, and takes no contexts
        kwargs["context_fn"] = partial(_contexts, layer)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def _contexts(layer: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What a layer is computed in for the first time, and for the second."""
    return nullcontext(), _statistics_kept(layer)


@contextmanager
def _statistics_kept(layer: nn.Module) -> Iterator[None]:
    """Within, BatchNorm takes the same batch up into its running mean and variance once more; then they are as before."""
    tables = [table for module in layer.modules() if isinstance(module, nn.BatchNorm2d) for table in module.buffers()]
    before = [table.clone() for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.copy_(old)
