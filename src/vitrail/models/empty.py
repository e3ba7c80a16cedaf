"""Models without numbers, to be given somebody's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch.overrides import TorchFunctionMode

from vitrail.models.base import ImageModel, Model
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.registry import build


class _NoInitialization(TorchFunctionMode):
    """Leaves out every function of `torch.nn.init`: on "meta" they do nothing, and take a second to import it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


@contextmanager
def no_numbers() -> Iterator[None]:
    """Build modules with shapes alone inside the ``with``: nothing is allocated for their parameters."""
    with torch.device("meta"), _NoInitialization():
        yield


@overload
def empty_model(config: ImageConfig) -> ImageModel: ...


@overload
def empty_model(config: ModelConfig) -> Model: ...


def empty_model(config: ModelConfig) -> Model:
    """Build a model whose parameters have shapes alone; fixed tables have their values."""
    with no_numbers():
        return build(config)
