"""Models on the "meta" device, whose parameters have shapes and no values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch.overrides import TorchFunctionMode

from vitrail.models.base import ImageModel, Model
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.registry import build

FILLS = (torch.Tensor.normal_, torch.Tensor.uniform_)
"""Methods that fill a tensor with random numbers, by which some functions of `torch.nn.init` work that do not ask a mode."""


class _NoInitialization(TorchFunctionMode):
    """A mode that skips every function of `torch.nn.init`: on "meta" they do nothing, and import a compiler for seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FILLS or getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


@contextmanager
def no_numbers() -> Iterator[None]:
    """Build modules on "meta" inside the ``with``: no memory is allocated for their parameters."""
    with torch.device("meta"), _NoInitialization():
        yield


@overload
def empty_model(config: ImageConfig) -> ImageModel: ...


@overload
def empty_model(config: ModelConfig) -> Model: ...


def empty_model(config: ModelConfig) -> Model:
    """Build a model whose parameters are on "meta"; buffers that are fixed tables have their values."""
    with no_numbers():
        return build(config)
