"""Measurements of a model on this machine: images per second, and memory in training."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail.checks import nearest_multiple
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.models.cost import totals
from vitrail.models.inference import for_inference


@dataclass(frozen=True)
class Measured:
    """Measurements of a model at one image size."""

    image_size: tuple[int, int]
    macs: int
    training_bytes: int
    """Bytes per image that a training step stores for the backward pass, in fp32 and without dropout."""
    images_per_second: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "image_size": list(self.image_size)}


def measured(model: ImageModel, batch: int = 8, *, sizes: Sequence[tuple[int, int]] = (), seconds: float = 0.3) -> list[Measured]:
    """Measure a model at several image sizes, by default at its own, two thirds of it and three halves of it."""
    own, patch = model.config.image_size, model.config.size_multiple
    steps = patch if max(patch) > 1 else [2 ** min(5, max(0, (side // 4).bit_length() - 1)) for side in own]
    smaller, larger = (
        tuple(nearest_multiple(f * side, step) for side, step in zip(own, steps, strict=True)) for f in (2 / 3, 3 / 2)
    )
    scaled = [smaller, own, larger]
    return [_measured(model, (height, width), batch, seconds) for height, width in sizes or _possible(model, scaled)]


def _possible(model: ImageModel, sizes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the sizes that the model supports: relative biases and MLPs across tokens limit them."""
    found = []
    for height, width in dict.fromkeys(sizes):
        with suppress(ConfigError):
            model.config.changed(image_size=(height, width))
            _at(model, (height, width))
            found.append((height, width))
    return found


def _at(model: ImageModel, size: tuple[int, int]) -> nn.Module:
    """Return the model for images of a size; raises `ConfigError` if it does not support them."""
    return model if size == model.config.image_size else model.at_any_size()


def _measured(model: ImageModel, size: tuple[int, int], batch: int, seconds: float) -> Measured:
    _, macs = totals(model.config.changed(image_size=size))
    device = next(model.parameters()).device
    images = torch.zeros(batch, model.config.channels, *size, device=device)
    network = _at(cast(ImageModel, for_inference(model).model), size)
    times: list[float] = []
    with torch.inference_mode():
        network(images)
        while sum(times) < seconds:
            start = time.perf_counter()
            network(images).cpu()
            times.append(time.perf_counter() - start)
    kept = kept_for_gradients(_at(model, size), images[:1].clone())
    return Measured(size, macs, kept, batch / sorted(times)[len(times) // 2])


def kept_for_gradients(model: nn.Module, images: Tensor) -> int:
    """Return the bytes that a forward pass stores for the backward pass, in addition to the weights."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would keep the graph alive

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        answers = model(images)
        del answers
    return sum(kept.values())
