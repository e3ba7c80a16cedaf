"""Models on the "meta" device, whose parameters have shapes and no values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch.overrides import TorchFunctionMode

from vitrail.models.base import ImageModel, Model
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.registry import build


class _NoInitialization(TorchFunctionMode):
    """A mode that skips every function of `torch.nn.init`: on "meta" they do nothing, and their import takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
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
